package failover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A State is what a Breaker does with Takes.
type State uint8

// The states.
const (
	Closed   State = iota // lets them through
	Open                  // fails them at once
	HalfOpen              // lets one through and fails the others
)

// String returns the state as a label.
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// A Breaker is a circuit breaker around a backend.
type Breaker struct {
	next   backends.Backend
	cfg    Config
	now    func() time.Time
	ctx    context.Context // of pings; ends with Close
	cancel context.CancelFunc

	current  atomic.Uint64         // a period
	refusal  atomic.Pointer[error] // what Takes get while it is not closed
	inFlight atomic.Int64
	spotless atomic.Bool // no failure is counted, so successes need not be

	// Counters for Stats.
	failed, refused, overloaded, late, opened, probes atomic.Uint64

	mu         sync.Mutex
	tally      tally
	tries      int         // delays since the store last stayed
	closedAt   time.Time   // when the breaker last closed; zero if it never opened
	timer      *time.Timer // of the present period
	pinging    bool        // even if its result is no longer waited for
	shut       bool        // Close was called
	background sync.WaitGroup
	changes    []change // not told yet
	telling    bool
}

var _ backends.Backend = (*Breaker)(nil)

var (
	errOverloaded = fmt.Errorf("%w: %w: overloaded: too many requests are under way", backends.ErrUnavailable, backends.ErrNotApplied)
	errExpired    = fmt.Errorf("%w: %w: no time is left to ask the store", backends.ErrUnavailable, backends.ErrNotApplied)
	errLate       = fmt.Errorf("%w: the verdict came after the deadline", backends.ErrUnavailable)
	errOverdue    = fmt.Errorf("%w: a probe of the store did not end in time", backends.ErrUnavailable)
)

// slack is how late a Take may be that had to wait for a part of its slice in
// vain; its other verdicts came before.
const slack = 5 * time.Millisecond

// New returns a closed breaker around next, and closes next with itself. now
// is the clock that deadlines of contexts are by: time.Now in earnest.
func New(next backends.Backend, cfg Config, now func() time.Time) *Breaker {
	cfg.setDefaults()
	b := &Breaker{next: next, cfg: cfg, now: now}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.tally.reset(cfg.Window)
	b.spotless.Store(true)
	return b
}

// Take sends reqs on, or fails them at once.
func (b *Breaker) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	out = out[:len(reqs)]
	if len(reqs) == 0 {
		return
	}
	p := b.period()
	if p.phase() == open || p.phase() == probing {
		b.refuse(out)
		return
	}
	began := b.now()
	if over(ctx, began) {
		backends.Fail(out, errExpired)
		return
	}
	defer b.inFlight.Add(-1)
	if b.inFlight.Add(1) > int64(b.cfg.MaxInFlight) {
		b.overloaded.Add(1)
		backends.Fail(out, errOverloaded)
		return
	}
	if p.phase() == closed {
		b.ask(ctx, began, p, reqs, out)
	} else if p, ok := b.claim(p); ok {
		ctx, cancel := context.WithDeadline(ctx, began.Add(b.cfg.Timeout))
		defer cancel()
		b.ask(ctx, began, p, reqs, out)
	} else {
		b.refuse(out)
	}
}

func (b *Breaker) refuse(out []limit.Verdict) {
	b.refused.Add(1)
	backends.Fail(out, *b.refusal.Load())
}

// ask sends reqs on and judges the store by what comes back.
func (b *Breaker) ask(ctx context.Context, began time.Time, p period, reqs []limit.Request, out []limit.Verdict) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(b.cfg.Timeout))
		defer cancel()
	}
	b.next.Take(ctx, reqs, out)
	ended := b.now()
	alive, why := answered(out)
	late := overdue(ctx, ended)
	// The store had no time to answer in, which is not its fault.
	cut := errors.Is(ctx.Err(), context.Canceled) || late && ended.Sub(began) < b.cfg.MinBudget
	switch {
	case alive && late && (why == nil || overdue(ctx, ended.Add(-slack))):
		b.late.Add(1)
		b.drop(out)
		b.settle(p, unless(cut, failed), errLate)
	case alive:
		b.settle(p, succeeded, nil)
	default:
		b.settle(p, unless(cut || why == nil, failed), why)
	}
}

// over says whether there is no point in asking.
func over(ctx context.Context, now time.Time) bool { return ctx.Err() != nil || overdue(ctx, now) }

// overdue says whether ctx's deadline has passed. It goes by the clock: a
// timer may be late.
func overdue(ctx context.Context, now time.Time) bool {
	d, ok := ctx.Deadline()
	return ok && !now.Before(d)
}

// A result is what a call says about the store.
type result uint8

const (
	nothing result = iota
	succeeded
	failed
)

func unless(not bool, r result) result {
	if not {
		return nothing
	}
	return r
}

// answered says whether the store answered any request, and why it did not
// answer one that it was asked. What a driver turns down by itself is neither.
func answered(out []limit.Verdict) (alive bool, why error) {
	for i := range out {
		switch err := out[i].Err; {
		case err == nil, errors.Is(err, backends.ErrCorrupt):
			alive = true
		case errors.Is(err, backends.ErrInvalid), errors.Is(err, backends.ErrUnsupported):
		case why == nil:
			why = err
		}
	}
	return alive, why
}

// drop makes errors of verdicts that came too late.
func (b *Breaker) drop(out []limit.Verdict) {
	for i := range out {
		if v := &out[i]; v.Err == nil {
			v.Reset(0)
			v.Err = errLate
		}
	}
}

// Forget passes keys on, unless the store is known to be away.
func (b *Breaker) Forget(ctx context.Context, keys []limit.Key) error {
	if b.period().phase() != closed {
		return *b.refusal.Load()
	}
	return b.next.Forget(ctx, keys)
}

// Ping asks the store in any state, as whoever asks wants to know just that.
// The answer changes no state.
func (b *Breaker) Ping(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.cfg.Timeout)
		defer cancel()
	}
	return b.next.Ping(ctx)
}

// Close ends what runs in the background, and closes the store.
func (b *Breaker) Close() error {
	b.mu.Lock()
	b.shut = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	b.cancel()
	ended := make(chan struct{})
	go func() { // outlives Close only where the store ignores its context
		b.background.Wait()
		close(ended)
	}()
	patience := time.NewTimer(b.cfg.Timeout)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
	}
	if err := b.next.Close(); err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	return nil
}

// State returns the present state.
func (b *Breaker) State() State { return b.period().phase().state() }

// Stats are figures for an operator. All but the first two only grow.
type Stats struct {
	State    State
	InFlight int64 // Takes under way
	// Failed counts Takes that spoke against the store, Late those of them
	// whose verdicts came after the deadline.
	Failed, Late uint64
	// Refused counts Takes that were failed because the breaker was not
	// closed, Overloaded those because of MaxInFlight.
	Refused, Overloaded uint64
	// Opened counts changes to Open, Probes the calls that were let through
	// to find out whether the store is back.
	Opened, Probes uint64
}

// Stats returns the present figures.
func (b *Breaker) Stats() Stats {
	return Stats{
		State: b.State(), InFlight: b.inFlight.Load(),
		Failed: b.failed.Load(), Late: b.late.Load(),
		Refused: b.refused.Load(), Overloaded: b.overloaded.Load(),
		Opened: b.opened.Load(), Probes: b.probes.Load(),
	}
}
