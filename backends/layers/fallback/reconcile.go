package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Signal wakes Run, because the primary is back. It does not block.
func (l *Backend) Signal() {
	select {
	case l.signal <- struct{}{}:
	default: // one is waiting already
	}
}

// Run reconciles after each Signal, and now and then if something is left,
// until ctx ends.
func (l *Backend) Run(ctx context.Context) {
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.signal:
		case <-tick.C:
		}
		if l.Pending() > 0 {
			l.attempt(ctx)
		}
	}
}

func (l *Backend) attempt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if r, err := l.Reconcile(ctx); r.Keys > 0 {
		l.cfg.OnReconcile(r, err)
	}
}

// Reconcile charges the primary for what was admitted here and still counts,
// each key once. What it has charged stays counted here, until its window ends:
// another outage does not begin afresh. What the primary has no room for is owed
// on, and charged when it may have some. Requests in flight are not
// charged: see the package's documentation. It returns at ctx's
// deadline, or when the primary fails; what is left then stays for the next
// time, and the error says why.
func (l *Backend) Reconcile(ctx context.Context) (r Result, err error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return r, fmt.Errorf("fallback: another reconciliation is under way: %w", ctx.Err())
	}
	defer func() {
		r.Left = l.Pending()
		<-l.turn
	}()
	var all []*debt
	for i := range l.debts {
		all = l.debts[i].appendDue(all, l.now())
	}
	for list := range slices.Chunk(all, l.cfg.Slice) {
		if over := ctx.Err(); over != nil {
			return r, fmt.Errorf("fallback: reconcile: %w", over)
		}
		settled, why := l.chargeSlice(ctx, list, &r)
		if why != nil {
			err = fmt.Errorf("fallback: reconcile: %w", why)
		}
		if why != nil && settled == 0 {
			return r, err // the others would fare no better
		}
	}
	return r, err
}

// A charge is a debt on its way to the primary.
type charge struct {
	debt    *debt
	of      *limit.Limit  // as it was when the units were counted
	units   int64         // owed
	ask     int64         // what may fit
	settled bool          // the primary has ask of them
	never   bool          // it cannot keep any
	retry   time.Duration // until it has room for more
}

// chargeSlice charges some debts. It says how many of them are settled, and
// why others are not.
func (l *Backend) chargeSlice(ctx context.Context, list []*debt, r *Result) (settled int, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	charges, now, err := l.count(ctx, list, r)
	if err != nil {
		return 0, err
	}
	err = l.send(ctx, charges, now)
	n := l.strike(charges, now, r)
	return n + len(list) - len(charges), err
}

// count finds out how much is owed. What no longer counts is dropped.
func (l *Backend) count(ctx context.Context, list []*debt, r *Result) ([]charge, limit.Instant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	reqs, out := make([]limit.Request, 0, len(list)), make([]limit.Verdict, len(list))
	for _, d := range list {
		ask := limit.Op{Key: d.key, Limit: l.shares.get(d.of)}
		reqs = append(reqs, limit.Request{At: now, Ops: []limit.Op{ask}})
	}
	l.Backend.Take(ctx, reqs, out)
	charges := make([]charge, 0, len(list))
	for i := range out {
		if out[i].Err != nil {
			return nil, now, fmt.Errorf("local backend: %w", out[i].Err)
		}
	}
	for i, d := range list {
		used := reqs[i].Ops[0].Limit.Capacity() - out[i].Outcomes[0].Remaining
		switch s := l.debtsOf(&d.key); {
		case !s.has(d):
		case used == 0 || d.units == 0:
			s.drop(&d.key)
			r.Ended++
		default:
			d.units = min(d.units, used)
			charges = append(charges, charge{debt: d, of: d.of, units: d.units, ask: d.units})
		}
	}
	return charges, now, nil
}

// maxTries is how often a charge is cut to what the primary says is left.
// Others take from that at the same time.
const maxTries = 4

// errCrowded: the primary answers, but others are faster each time.
var errCrowded = errors.New("what is left changes too fast")

// send charges the primary, each key by what fits.
func (l *Backend) send(ctx context.Context, charges []charge, now limit.Instant) (err error) {
	if l.cfg.ServerClock {
		now = 0
	}
	rest := make([]*charge, len(charges))
	for i := range charges {
		rest[i] = &charges[i]
	}
	for range maxTries {
		if len(rest) == 0 {
			return err
		}
		reqs, out := make([]limit.Request, len(rest)), make([]limit.Verdict, len(rest))
		for i, c := range rest {
			reqs[i] = limit.Request{At: now, Ops: []limit.Op{{Key: c.debt.key, Limit: c.of.Strict(), Cost: c.ask}}}
		}
		l.primary.Take(ctx, reqs, out)
		again := rest[:0]
		for i, c := range rest {
			if why := l.hear(c, &out[i]); why != nil {
				err = why
			} else if !c.settled {
				again = append(again, c)
			}
		}
		rest = again
	}
	if len(rest) > 0 && err == nil {
		err = errCrowded
	}
	return err
}

var errRecalled = fmt.Errorf("%w: it refused before it went away", backends.ErrUnavailable)

// hear draws the conclusion from the primary's verdict. An error keeps the
// debt; without one and not settled, it is to be asked for less.
func (l *Backend) hear(c *charge, v *limit.Verdict) error {
	switch {
	case errors.Is(v.Err, backends.ErrInvalid), errors.Is(v.Err, backends.ErrUnsupported),
		errors.Is(v.Err, backends.ErrCorrupt):
		l.refused.Add(1) // and will be each time
		c.ask, c.settled, c.never = 0, true, true
	case v.Err != nil:
		return v.Err
	case v.Recalled:
		return errRecalled
	case v.Admitted:
		c.settled = true
	default:
		c.retry = v.Outcomes[0].Retry
		c.ask = min(c.ask, v.Outcomes[0].Remaining)
		c.settled = c.ask == 0
	}
	return nil
}

// strike strikes off what is settled. What was admitted in the meantime is owed on, and so
// is what the primary has no room for.
func (l *Backend) strike(charges []charge, now limit.Instant, r *Result) (settled int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if !c.settled {
			continue
		}
		settled++
		short := max(c.units-c.ask-c.debt.short, 0) // else it was counted before
		l.units.Add(uint64(c.ask))
		l.short.Add(uint64(short))
		r.Units += c.ask
		r.Short += short
		if c.ask > 0 || short > 0 || c.never {
			r.Keys++
		}
		l.debtsOf(&c.debt.key).pay(c, now, l.cfg.Every)
	}
	return settled
}

// retryShare is into how many parts the time is divided until the primary has room for all that is owed: it
// may have some sooner.
const retryShare = 8

// pay takes what is charged off a debt, unless that was forgotten meanwhile.
func (s *debts) pay(c *charge, now limit.Instant, soonest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := c.debt
	if s.byKey[d.key] != d {
		return
	}
	d.units, d.short, d.next = d.units-c.ask, c.units-c.ask, 0
	switch {
	case d.units <= 0, c.never:
		delete(s.byKey, d.key)
	case d.short > 0 && c.retry == limit.Never:
		d.next = d.ends
	case d.short > 0:
		d.next = now.AddUp(max(c.retry/retryShare, soonest))
	}
}
