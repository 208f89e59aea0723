package slotstest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
	"github.com/headgate-rls/headgate/test/random"
)

// A Harness says how to get at databases of one make.
type Harness struct {
	Name string
	// Fresh makes a database with nothing in it. It is there until the test ends.
	Fresh func(t *testing.T) Database
	// Serial has transactions wait for each other: nobody can see a lock held.
	Serial bool
	// Parallel has engines tested at the same time, each on a database of its own.
	Parallel bool
	// Checks are the names of those to do, such as "Lock"; empty: all.
	Checks []string
	// Short are the parts, PartStore and engines, with the same semantics as those of another harness,
	// which pass the whole suite there: here, but in the long form of tests, they pass the chosen checks.
	Short []string
	// Engines to test; empty: "tx", and "procedure" if the store has one.
	Engines []string
}

// A Database is one of them.
type Database struct {
	// Open returns a Store with connections of its own, which the test closes.
	// Migrate was called on it.
	Open func(t *testing.T) slots.Store
	// CutAll breaks all connections that there are; nil if it cannot be done.
	CutAll func()
	// URL is what a ChaosOpener makes a Store of, in another process.
	URL string
}

// The engines, and the part of the suite that is about the store alone.
const (
	PartStore       = "store"
	EngineTx        = "tx"
	EngineProcedure = "procedure"
)

// Parts are all parts of the suite.
var Parts = []string{PartStore, EngineTx, EngineProcedure}

// suiteLimit bounds each test: it must be a fault to be reached.
const suiteLimit = 2 * time.Minute

// fixture is what tests of the suite share: one database, and series and names that no other
// test uses.
type fixture struct {
	Harness
	db     Database
	store  slots.Store
	since  slots.Position // which all slots of the test come after
	engine string         // in tests of engines
	prefix string
	number *atomic.Int64
}

// Run holds the stores of a harness, and engines on top of them, to the contract
// and to the invariants that the package promises.
func Run(t *testing.T, h Harness) {
	db := h.Fresh(t)
	f := &fixture{Harness: h, db: db, store: db.Open(t), number: new(atomic.Int64)}
	for _, c := range h.chosen(PartStore, storeChecks()) {
		t.Run(c.name, func(t *testing.T) { c.run(t, f.named()) })
	}
	for _, engine := range h.engines(f.store) {
		t.Run(engine, func(t *testing.T) {
			g := *f
			g.engine = engine
			if h.Parallel {
				t.Parallel()
				g.db = h.Fresh(t)
				g.store = g.db.Open(t)
			}
			g.runEngine(t)
		})
	}
	for _, c := range h.chosen(PartStore, upkeepChecks()) {
		t.Run(c.name, func(t *testing.T) {
			g := f.named()
			g.db = h.Fresh(t)
			g.store = g.db.Open(t)
			c.run(t, g)
		})
	}
}

// runEngine runs the checks of the fixture's engine.
func (f *fixture) runEngine(t *testing.T) {
	for _, c := range f.chosen(f.engine, slices.Concat(engineChecks(), schedulerChecks(), earliestChecks())) {
		t.Run(c.name, func(t *testing.T) {
			f.since = f.newest(t)
			c.run(t, f.named())
		})
	}
}

// A check is one test of the suite.
type check struct {
	name string
	run  func(t *testing.T, f *fixture)
}

// engines are those to test on the store.
func (h *Harness) engines(store slots.Store) []string {
	switch {
	case len(h.Engines) > 0:
		return h.Engines
	case store.Procedure() != nil:
		return []string{EngineTx, EngineProcedure}
	}
	return []string{EngineTx}
}

// short reports whether a part has the chosen checks only.
func (h *Harness) short(part string) bool { return slices.Contains(h.Short, part) && !random.Long() }

// shortChecks are those of a short suite. TestSuiteFindsFlaws holds them to what they find.
var shortChecks = []string{
	"Provision", "ProvisionSeeds", "Frontier", "Lock", "LockHeld", "Claim", "Rollback", "ClaimDuplicate", "Find", "Scout",
	"ProvisionTogether",
	"Scripts", "Crowd", "HeldWindow", "FullWindowNotHeld", "LostCommits",
	"Duplicates", "Batch", "LowerAndPause", "Resize", "ConnectionsCut", "NoHoles",
	"Configs", "Since", "Lead", "Purge", "Drift",
}

func (h *Harness) chosen(part string, all []check) []check {
	short := h.short(part)
	return slices.DeleteFunc(all, func(c check) bool {
		return len(h.Checks) > 0 && !slices.Contains(h.Checks, c.name) || short && !slices.Contains(shortChecks, c.name)
	})
}

// named returns a copy for one test.
func (f *fixture) named() *fixture {
	g := *f
	g.prefix = fmt.Sprintf("n%d", f.number.Add(1))
	return &g
}

func (f *fixture) series(sizeMs int64) slots.Series {
	return slots.Series{Scope: f.prefix, SizeMs: sizeMs}
}

// event is an event id of this test.
func (f *fixture) event(n int) string { return fmt.Sprintf("%s-e%d", f.prefix, n) }

// id is a slot id that nobody else uses.
func (f *fixture) id() string { return fmt.Sprintf("%s-s%d", f.prefix, f.number.Add(1)) }

// limited is a context that ends with the suite's limit.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), suiteLimit)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// on returns the engine under test over a store.
func (f *fixture) on(store slots.Store) slots.Engine {
	e := slots.TxEngine(store)
	if f.engine == EngineProcedure {
		return slots.ProcedureEngine(store.Procedure(), e)
	}
	return e
}

// scheduler returns a Scheduler with the engine under test.
func (f *fixture) scheduler(t testing.TB, store slots.Store, s slots.Settings) *slots.Scheduler {
	t.Helper()
	s.Procedure = f.engine == EngineProcedure
	s.Timeout = cmp.Or(s.Timeout, time.Minute)
	scheduler, err := slots.NewScheduler(store, s)
	must(t, err, "new scheduler")
	return scheduler
}

// config puts a config of the test's own name.
func (f *fixture) config(t testing.TB, s *slots.Scheduler, max, sizeMs int64) slots.Config {
	t.Helper()
	c, err := s.PutConfig(limited(t), slots.NewConfig{Name: f.prefix, Max: max, SizeMs: sizeMs})
	must(t, err, "put a config")
	return c
}

// search makes a search for events at an instant.
func (f *fixture) search(s slots.Series, us, max int64, events ...string) *slots.Search {
	first := plan.WindowStart(us, s.SizeMs)
	q := &slots.Search{
		Series: s, ConfigID: "c-" + f.prefix, Max: max, FirstMs: first, FromMs: first + s.SizeMs,
		EndMs: first + 1e6*s.SizeMs,
	}
	elapsed := plan.Elapsed(us, s.SizeMs)
	for _, e := range events {
		q.Asks = append(q.Asks, slots.Ask{
			EventID: e, SlotID: f.id(), RequestedUs: us, ElapsedMs: elapsed,
			FirstMax: plan.FirstCapacity(max, elapsed, s.SizeMs), Bits: rand.Uint32() >> 1,
		})
	}
	return q
}

// assign searches as a Scheduler does, trying again what failed in passing.
func assign(ctx context.Context, e slots.Engine, s *slots.Search) (found slots.Found, err error) {
	err = persistently(ctx, func() error {
		found, err = e.Assign(ctx, s)
		return err
	})
	return found, err
}

// persistently calls f again while it fails in passing. A wait for a lock that the database
// ends is one such failure: on a busy machine anybody may have to wait for so long.
func persistently(ctx context.Context, f func() error) error {
	for {
		err := f()
		kind := slots.KindOf(err)
		again := err != nil && (kind == slots.Passing || kind == slots.Duplicate || kind == slots.Held)
		if !again || ctx.Err() != nil {
			return err
		}
		rest(ctx, time.Duration(rand.Int64N(int64(5*time.Millisecond))))
	}
}

// together runs f(0) … f(n-1) at the same time.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// audit fails the test for everything that Audit finds in the series.
func (f *fixture) audit(t testing.TB, s slots.Series, max int64) {
	t.Helper()
	all := f.all(t)
	wrong, err := again(func() ([]string, error) { return auditAmong(limited(t), f.store, all, s, max) })
	must(t, err, "audit")
	if len(wrong) > 0 {
		t.Errorf("%d things are wrong:\n%s", len(wrong), strings.Join(wrong[:min(len(wrong), 10)], "\n"))
	}
}

// slotsOf returns the slots of the series, by window.
func (f *fixture) slotsOf(t testing.TB, s slots.Series) map[int64][]slots.Slot {
	t.Helper()
	windows := map[int64][]slots.Slot{}
	for _, slot := range f.all(t) {
		if slot.Series == s {
			windows[slot.WindowMs] = append(windows[slot.WindowMs], slot)
		}
	}
	return windows
}

// all returns the slots of the test, and perhaps some of others.
func (f *fixture) all(t testing.TB) []slots.Slot {
	t.Helper()
	all, err := again(func() ([]slots.Slot, error) { return slotsAfter(limited(t), f.store, f.since) })
	must(t, err, "list slots")
	return all
}

// newest is a position that all slots which are there are before, but for those of the
// last second: a clock may have been set back a little.
func (f *fixture) newest(t testing.TB) slots.Position {
	all := f.all(t)
	if len(all) == 0 {
		return f.since
	}
	return slots.Position{CreatedUs: all[len(all)-1].CreatedUs - time.Second.Microseconds()}
}

// again reads a second time, and so on, where a connection was found broken.
func again[T any](read func() (T, error)) (v T, err error) {
	for range 100 {
		if v, err = read(); err == nil || slots.KindOf(err) != slots.Passing {
			break
		}
	}
	return v, err
}

// same compares slots but for when they were created.
func same(a, b slots.Slot) bool {
	a.CreatedUs, b.CreatedUs = 0, 0
	return a == b
}

// day is some day on which clocks change in New York.
var day = time.Date(2026, 11, 1, 5, 59, 48, 0, time.UTC)
