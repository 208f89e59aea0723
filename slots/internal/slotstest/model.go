package slotstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// A Model is a slots.Store in memory, for tests only. It behaves as a database
// at READ COMMITTED does: a statement sees what was committed
// before it, a window's lock lasts until its transaction ends, and an event id
// that another transaction has inserted blocks until that one has ended. It
// fails as databases do, if Inject says so.
//
// Statements of a Schedule's callers are steps of that Schedule. It also notes
// what an engine must never do, such as to ask for a second connection while it
// holds a window (see Misuse). It keeps everything for ever but what is purged.
type Model struct {
	// Serial has transactions that write run one after another, as in SQLite.
	// To be set before use.
	Serial bool

	mu      sync.Mutex
	changed *sync.Cond
	step    int64 // number of statements so far
	clockUs int64

	windows   map[slots.WindowKey]*modelWindow
	gone      map[slots.WindowKey]map[*caller]int64 // what modelWindow.held was of rows that were rolled back
	frontiers map[slots.WindowKey]int64             // by chunk
	events    map[string]*modelSlot
	slotIDs   map[string]string // to event
	configs   []slots.Config
	changes   int64 // the generation
	leases    map[string]modelLease
	scope     string // how configs count; empty: not decided

	writer *modelTx // who may write, if Serial
	open   map[*modelTx]struct{}
	counts map[string]int
	misuse []string
	faults Faults
	rng    *rand.Rand
}

type modelWindow struct {
	count  int64
	madeUs int64
	holder *modelTx
	maker  *modelTx // whose transaction has made it and is not committed
	// held has the last step at which the caller held it.
	held map[*caller]int64
}

// modelSlot is a row; owner is nil once it is committed.
type modelSlot struct {
	slots.Slot
	owner *modelTx
}

type modelLease struct {
	holder  string
	untilUs int64
}

// Faults are probabilities of what may go wrong with a statement.
type Faults struct {
	Abort      float64 // it fails, and its transaction with it
	Held       float64 // a window that another holds is said to be held for too long
	LostCommit float64 // a commit, or a statement of its own, fails after it took effect, or before, or takes effect later
}

// NewModel returns an empty Model that does not fail.
func NewModel() *Model {
	m := &Model{
		clockUs:   time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(),
		windows:   map[slots.WindowKey]*modelWindow{},
		gone:      map[slots.WindowKey]map[*caller]int64{},
		frontiers: map[slots.WindowKey]int64{},
		events:    map[string]*modelSlot{},
		slotIDs:   map[string]string{},
		leases:    map[string]modelLease{},
		open:      map[*modelTx]struct{}{},
		counts:    map[string]int{},
		rng:       rand.New(rand.NewPCG(1, 2)),
	}
	m.changed = sync.NewCond(&m.mu)
	return m
}

// Inject has statements fail from now on, by the seed.
func (m *Model) Inject(f Faults, seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults, m.rng = f, rand.New(rand.NewPCG(seed, 0xfa17))
}

// Counts returns how often each statement was asked for, by name.
func (m *Model) Counts() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make(map[string]int, len(m.counts))
	maps.Copy(counts, m.counts)
	return counts
}

// Misuse returns what was done that must never be done, and the transactions
// that are still open.
func (m *Model) Misuse() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := append([]string(nil), m.misuse...)
	for tx := range m.open {
		if !tx.zombie {
			all = append(all, "a transaction was never ended")
		}
	}
	return all
}

var (
	errInjected   = errors.New("injected: connection lost")
	errLostCommit = errors.New("injected: connection lost while committing")
	errDeadlock   = errors.New("deadlock")
	errHeld       = errors.New("injected: held for too long")
)

func passing(op string, err error) error {
	return &slots.StoreError{Kind: slots.Passing, Op: op, Err: err}
}

func failed(op, format string, args ...any) error {
	return &slots.StoreError{Kind: slots.Failed, Op: op, Err: fmt.Errorf(format, args...)}
}

// enter begins a statement: the caller takes its turn and the model is locked,
// unless there is an error.
func (m *Model) enter(ctx context.Context, op string) error {
	if c := callerOf(ctx); c != nil {
		c.pause(nil)
	}
	m.mu.Lock()
	m.step++
	m.clockUs++
	m.counts[op]++
	err := ctx.Err()
	if c := callerOf(ctx); c != nil && c.over() {
		err = failed(op, "the schedule is over")
	}
	if err != nil {
		m.mu.Unlock()
	}
	return err
}

// alone begins a statement that is a transaction of its own.
func (m *Model) alone(ctx context.Context, op string) error {
	if err := m.enter(ctx, op); err != nil {
		return err
	}
	if c := callerOf(ctx); c != nil && c.open != nil {
		m.misuse = append(m.misuse, op+" was asked for while a transaction of the caller was open")
	}
	if m.chance(m.faults.Abort) {
		m.mu.Unlock()
		return passing(op, errInjected)
	}
	return nil
}

// write is alone for a statement that writes.
func (m *Model) write(ctx context.Context, op string) error {
	if err := m.alone(ctx, op); err != nil {
		return err
	}
	if err := m.await(ctx, func() bool { return m.writer == nil }); err != nil {
		m.mu.Unlock()
		return err
	}
	return nil
}

// wrote ends a statement that write has begun.
func (m *Model) wrote(op string) error {
	defer m.mu.Unlock()
	if m.chance(m.faults.LostCommit) {
		return passing(op, errLostCommit)
	}
	return nil
}

func (m *Model) chance(p float64) bool { return p > 0 && m.rng.Float64() < p }

// await unlocks the model until ready.
func (m *Model) await(ctx context.Context, ready func() bool) error {
	if c := callerOf(ctx); c != nil {
		for !ready() {
			if c.over() {
				return failed("wait", "the schedule is over")
			}
			m.mu.Unlock()
			c.pause(ready)
			m.mu.Lock()
		}
		return ctx.Err()
	}
	defer context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.changed.Broadcast()
	})()
	for !ready() && ctx.Err() == nil {
		m.changed.Wait()
	}
	return ctx.Err()
}
