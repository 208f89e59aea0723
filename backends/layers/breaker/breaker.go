package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/internal/circuit"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend is a circuit breaker around a backend.
type Backend struct {
	next    backends.Backend
	cfg     Config
	now     func() time.Time
	circuit *circuit.Circuit

	inFlight atomic.Int64
	pulse    pulse
	gait     gait

	// Takes that were failed as the breaker was not closed, those as of MaxInFlight, and verdicts after the deadline.
	refused, overloaded, late atomic.Uint64
}

var _ backends.Backend = (*Backend)(nil)

var (
	errFull       = fmt.Errorf("%w: %w: too many requests are under way", backends.ErrUnavailable, backends.ErrNotApplied)
	errOverloaded = fmt.Errorf("%w: %w", backends.ErrOverloaded, errFull)
	errExpired    = fmt.Errorf("%w: %w: no time is left to ask the store", backends.ErrUnavailable, backends.ErrNotApplied)
	errLate       = fmt.Errorf("%w: the verdict came after the deadline", backends.ErrUnavailable)
)

// slack is how late a Take may return when one part of its slice did not answer;
// its other verdicts came before.
const slack = 5 * time.Millisecond

// New returns a closed breaker around next, and closes next with itself. now
// is the clock of the contexts' deadlines; outside tests it is time.Now.
func New(next backends.Backend, cfg Config, now func() time.Time) *Backend {
	cfg.setDefaults()
	b := &Backend{next: next, cfg: cfg, now: now, circuit: circuit.New(circuit.Config{
		Failures: cfg.Failures, Share: cfg.Share, Window: cfg.Window,
		Delay: cfg.Delay, MaxDelay: cfg.MaxDelay, PingAfter: cfg.PingAfter, Timeout: cfg.Timeout,
		Ping:     func(ctx context.Context) error { return silence(next.Ping(ctx)) },
		OnChange: cfg.OnChange, Rand: cfg.Rand, Panics: cfg.Panics,
	})}
	b.gait.ctx, b.gait.cancel = context.WithCancel(context.Background())
	return b
}

// Take sends reqs on, or fails them at once.
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	out = out[:len(reqs)]
	if len(reqs) == 0 {
		return
	}
	p := b.circuit.Period()
	if p.Refuses() {
		b.refuse(out)
		return
	}
	began := b.now()
	if ctx.Err() != nil || overdue(ctx, began) { // there is no point in asking
		backends.Fail(out, errExpired)
		return
	}
	defer b.inFlight.Add(-1)
	if b.inFlight.Add(1) > int64(b.cfg.MaxInFlight) {
		b.overloaded.Add(1)
		backends.Fail(out, b.full())
		return
	}
	if p.State() == Closed {
		b.ask(ctx, began, p, reqs, out)
	} else if p, ok := b.circuit.Claim(p); ok {
		ctx, cancel := context.WithDeadline(ctx, began.Add(b.cfg.Timeout))
		defer cancel()
		b.ask(ctx, began, p, reqs, out)
	} else {
		b.refuse(out)
	}
}

func (b *Backend) refuse(out []limit.Verdict) {
	b.refused.Add(1)
	b.gait.refused.Add(1)
	backends.Fail(out, b.circuit.Refusal())
}

// ask sends reqs on and judges the store by what comes back.
func (b *Backend) ask(ctx context.Context, began time.Time, p circuit.Period, reqs []limit.Request,
	out []limit.Verdict) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(b.cfg.Timeout))
		defer cancel()
	}
	b.pulse.asked(began)
	if err := b.cfg.Panics.Do("backend", func() { b.next.Take(ctx, reqs, out) }); err != nil {
		backends.Fail(out, fmt.Errorf("%w: %w", backends.ErrUnavailable, err))
	}
	ended := b.now()
	alive, declined, why := answered(out)
	if declined != nil {
		b.cfg.OnDeclined(declined)
	}
	late := overdue(ctx, ended)
	// The caller left the store too little time, which is not a failure of the store.
	cut := errors.Is(ctx.Err(), context.Canceled) || late && b.hurried(ended, ended.Sub(began))
	result := circuit.Succeeded
	switch {
	case alive && late && (why == nil || overdue(ctx, ended.Add(-slack))):
		b.late.Add(1)
		b.drop(out)
		result, why = unless(cut, circuit.Failed), errLate
	case !alive:
		result = unless(cut || why == nil, circuit.Failed)
	}
	b.pulse.ended(began, ended, result)
	deadline, _ := ctx.Deadline()
	b.gait.ended(deadline.Sub(began), ended.Sub(began), late)
	b.circuit.Settle(p, result, why)
}

// hurried reports whether a caller waited for too short a time to judge the store
// by it: for less than MinBudget, or for less than the store needs for others.
func (b *Backend) hurried(now time.Time, waited time.Duration) bool {
	return waited < b.cfg.MinBudget || waited < b.pulse.needed(now)
}

// Answers reports whether the store answers in time, as far as is known: it did
// when it was last asked, and has not been silent since for half of the Timeout.
func (b *Backend) Answers() bool {
	return b.State() == Closed && b.pulse.beats(b.now(), b.cfg.Timeout/2)
}

func (b *Backend) full() error {
	if b.Answers() {
		return errOverloaded
	}
	return errFull
}

// overdue reports whether ctx's deadline has passed. It goes by the clock: a
// timer may be late.
func overdue(ctx context.Context, now time.Time) bool {
	d, ok := ctx.Deadline()
	return ok && !now.Before(d)
}

func unless(not bool, r circuit.Result) circuit.Result {
	if not {
		return circuit.Nothing
	}
	return r
}

// silence returns err if it says that the store does not answer.
func silence(err error) error {
	if errors.Is(err, backends.ErrDeclined) {
		return nil
	}
	return err
}

// answered reports whether the store answered any request, be it only that it declines it; an error of one
// that it declined; and why it did not answer one that it was asked. What a driver turns down by itself
// is neither.
func answered(out []limit.Verdict) (alive bool, declined, why error) {
	for i := range out {
		switch err := out[i].Err; {
		case err == nil, errors.Is(err, backends.ErrCorrupt):
			alive = true
		case errors.Is(err, backends.ErrDeclined):
			alive, declined = true, err
		case errors.Is(err, backends.ErrInvalid), errors.Is(err, backends.ErrUnsupported):
		case why == nil:
			why = err
		}
	}
	return alive, declined, why
}

// drop makes errors of verdicts that came too late.
func (b *Backend) drop(out []limit.Verdict) {
	for i := range out {
		if v := &out[i]; v.Err == nil {
			v.Fail(errLate)
		}
	}
}

// Forget passes keys on, unless the store is known to be away.
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	if b.State() != Closed {
		return b.circuit.Refusal()
	}
	return b.next.Forget(ctx, keys)
}

// Ping asks the store in any state: the caller wants to know whether it answers.
// The answer changes no state.
func (b *Backend) Ping(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.cfg.Timeout)
		defer cancel()
	}
	return b.next.Ping(ctx)
}

// Close ends what runs in the background, and closes the store.
func (b *Backend) Close() error {
	b.circuit.Stop()
	b.gait.cancel()
	ended := make(chan struct{})
	b.cfg.Panics.Go("close", func() { // outlives Close only where the store ignores its context
		defer close(ended)
		b.circuit.Wait()
		b.gait.pings.Wait()
	})
	select {
	case <-ended:
	case <-time.After(b.cfg.Timeout):
	}
	if err := b.next.Close(); err != nil {
		return fmt.Errorf("breaker: %w", err)
	}
	return nil
}

// State returns the present state.
func (b *Backend) State() State { return b.circuit.Period().State() }
