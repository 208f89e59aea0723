package persecond

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// A split has fixed windows of a second be kept in a store of their own, and all other limits in the main one. A
// request with limits of both is decided in both, at the same time if each of its limits is charged on its own.
//
// Where they are charged together, the store of seconds is asked first, and the main one takes nothing of a request
// that is refused there. What the main one refuses afterwards stays charged until its second ends.
//
// While one of the stores fails, the other goes on: what it refuses is refused, and what it admits has the error.
type split struct {
	main, second backends.Backend
	closeSecond  func() error // closes all of the second stack
	panics       *background.Reporter
}

// perSecond reports whether an op belongs to the store of seconds.
func perSecond(op *limit.Op) bool {
	return op.Limit != nil && op.Limit.Algorithm() == limit.FixedWindow && op.Limit.Window() == time.Second
}

var errChoiceApart = fmt.Errorf("%w: %w: some alternatives are limits per second, which have a store of their own",
	backends.ErrUnsupported, backends.ErrNotApplied)

// choiceApart reports whether no store knows all alternatives of a request.
func choiceApart(req limit.Request) bool {
	second := func(op limit.Op) bool { return perSecond(&op) }
	main := func(op limit.Op) bool { return !perSecond(&op) }
	return limit.HasAlternatives(req.Ops) && slices.ContainsFunc(req.Ops, second) && slices.ContainsFunc(req.Ops, main)
}

// Take implements [backends.Backend].
func (s *split) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if i := slices.IndexFunc(reqs, choiceApart); i >= 0 {
		s.Take(ctx, reqs[:i], out[:i])
		out[i].Fail(errChoiceApart)
		s.Take(ctx, reqs[i+1:], out[i+1:])
		return
	}
	seconds, others, together := false, false, false
	for i := range reqs {
		second, main, both := false, false, false // both: some op is not charged by itself
		for j := range reqs[i].Ops {
			op := &reqs[i].Ops[j]
			second, main, both = second || perSecond(op), main || !perSecond(op), both || !op.ChargesEach()
		}
		seconds, others, together = seconds || second, others || main, together || second && main && both
	}
	switch {
	case !seconds:
		s.main.Take(ctx, reqs, out)
	case !others:
		s.second.Take(ctx, reqs, out)
	case together:
		s.takeTogether(ctx, reqs, out)
	default:
		s.takeEach(ctx, reqs, out)
	}
}

// takeEach asks both stores at once.
func (s *split) takeEach(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	main, second := part{of: reqs}, part{of: reqs, seconds: true}
	main.fill(nil, nil)
	second.fill(nil, nil)
	done := make(chan struct{})
	s.panics.Go("per-second store", func() {
		defer close(done)
		second.ask(ctx, s.second)
	})
	main.ask(ctx, s.main)
	<-done
	merge(reqs, out, &second, &main)
}

// takeTogether asks the store of seconds and then, with what that says, the main one. Requests that need not wait for
// it are sent to the main store at once.
func (s *split) takeTogether(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	waits := waiting(reqs)
	main, early, second := part{of: reqs}, part{of: reqs}, part{of: reqs, seconds: true}
	second.fill(nil, nil)
	early.fill(func(i int) bool { return !waits[i] }, nil)
	done := make(chan struct{})
	if len(early.reqs) == 0 {
		close(done)
	} else {
		s.panics.Go("main store", func() {
			defer close(done)
			early.ask(ctx, s.main)
		})
	}
	second.ask(ctx, s.second)
	main.fill(func(i int) bool { return waits[i] }, func(i int, op limit.Op) limit.Op {
		if v := second.verdict(i); v != nil && v.Err == nil && !v.Admitted && !op.ChargesEach() {
			op.Cost, op.Holder, op.Shadow = 0, "", true // says what is left
		}
		return op
	})
	main.ask(ctx, s.main)
	<-done
	merge(reqs, out, &second, &early, &main)
}

// waiting says which requests the main store is asked about after the store of seconds: those with limits per second,
// and those that share a key with one that waits, as the order counts there.
func waiting(reqs []limit.Request) []bool {
	waits, byKey := make([]bool, len(reqs)), map[limit.Key][]int{}
	for i := range reqs {
		for j := range reqs[i].Ops {
			key := reqs[i].Ops[j].Key
			byKey[key] = append(byKey[key], i)
		}
	}
	var wait func(i int)
	wait = func(i int) {
		waits[i] = true
		for j := range reqs[i].Ops {
			key := reqs[i].Ops[j].Key
			same := byKey[key]
			delete(byKey, key) // all of these wait from now on
			for _, other := range same {
				if !waits[other] {
					wait(other)
				}
			}
		}
	}
	for i := range reqs {
		if !waits[i] && slices.ContainsFunc(reqs[i].Ops, func(op limit.Op) bool { return perSecond(&op) }) {
			wait(i)
		}
	}
	return waits
}

// A part is what one of the stores decides of requests.
type part struct {
	of      []limit.Request
	seconds bool
	reqs    []limit.Request
	out     []limit.Verdict
	where   []int   // of each request of of: its index in reqs, or -1
	ops     [][]int // of each request of of: which of its ops are asked about
}

// fill collects the part's ops, of all requests or those that belong, changed by as if that is not nil.
func (p *part) fill(belongs func(i int) bool, as func(i int, op limit.Op) limit.Op) {
	p.where, p.ops = make([]int, len(p.of)), make([][]int, len(p.of))
	for i := range p.of {
		var ops []limit.Op
		for j, op := range p.of[i].Ops {
			over := p.seconds && op.AsOf != 0 // a second that is over needs no correction
			if over || perSecond(&op) != p.seconds || belongs != nil && !belongs(i) {
				continue
			}
			if as != nil {
				op = as(i, op)
			}
			ops, p.ops[i] = append(ops, op), append(p.ops[i], j)
		}
		p.where[i] = -1
		if len(ops) > 0 {
			p.where[i] = len(p.reqs)
			p.reqs = append(p.reqs, limit.Request{Ops: ops, At: p.of[i].At})
		}
	}
	p.out = make([]limit.Verdict, len(p.reqs))
}

// ask asks the part's store. A panic there is an error of all requests.
func (p *part) ask(ctx context.Context, store backends.Backend) {
	backends.Fail(p.out, fmt.Errorf("%w: its store did not answer", backends.ErrUnavailable))
	if len(p.reqs) > 0 {
		store.Take(ctx, p.reqs, p.out)
	}
}

// verdict returns what the part says of a request, nil if it was not asked.
func (p *part) verdict(i int) *limit.Verdict {
	if p.where[i] < 0 {
		return nil
	}
	return &p.out[p.where[i]]
}

// merge makes the verdicts of requests from those of parts. Where one has failed, nothing was recorded only if no store
// has recorded anything. It is an overload if one of the stores is flooded: else a flood of one store would have the
// limits of a failing one open.
func merge(reqs []limit.Request, out []limit.Verdict, parts ...*part) {
	for i := range out {
		v := &out[i]
		v.Reset(len(reqs[i].Ops))
		v.Admitted = true
		for j := range v.Outcomes { // of ops that nobody was asked about
			v.Outcomes[j] = limit.Outcome{Admitted: true, Remaining: reqs[i].Ops[j].Limit.Capacity()}
		}
		var failed error
		decided, overloaded := false, false
		for _, p := range parts {
			pv := p.verdict(i)
			if pv == nil {
				continue
			}
			if pv.Err == nil {
				decided = true
				v.At, v.Admitted, v.Recalled = pv.At, v.Admitted && pv.Admitted, v.Recalled || pv.Recalled
				for k, j := range p.ops[i] {
					v.Outcomes[j] = pv.Outcomes[k]
				}
				continue
			}
			overloaded = overloaded || errors.Is(pv.Err, backends.ErrOverloaded)
			if failed == nil || errors.Is(pv.Err, backends.ErrLater) ||
				!errors.Is(pv.Err, backends.ErrNotApplied) && !errors.Is(failed, backends.ErrLater) {
				failed = pv.Err
			}
		}
		if failed == nil || !v.Admitted {
			continue
		}
		if decided {
			failed = applied(failed)
		}
		if overloaded && !errors.Is(failed, backends.ErrOverloaded) {
			failed = fmt.Errorf("%w: %w", backends.ErrOverloaded, failed)
		}
		v.Reset(0)
		v.Err = failed
	}
}

// applied returns an error of the same kind that does not say that nothing was recorded.
func applied(err error) error {
	for _, kind := range []error{backends.ErrLater, backends.ErrCorrupt, backends.ErrInvalid, backends.ErrUnsupported,
		backends.ErrDeclined} {
		if errors.Is(err, kind) {
			return fmt.Errorf("%w: one of two stores: %v", kind, err)
		}
	}
	return fmt.Errorf("%w: one of two stores: %v", backends.ErrUnavailable, err)
}

// Forget implements [backends.Backend].
func (s *split) Forget(ctx context.Context, keys []limit.Key) error {
	return errors.Join(s.main.Forget(ctx, keys), s.second.Forget(ctx, keys))
}

// Ping implements [backends.Backend]: both stores must answer.
func (s *split) Ping(ctx context.Context) error {
	second := s.second.Ping(ctx)
	if second != nil {
		second = fmt.Errorf("the store of limits per second: %w", second)
	}
	return errors.Join(s.main.Ping(ctx), second)
}

// Close implements [backends.Backend].
func (s *split) Close() error { return errors.Join(s.main.Close(), s.closeSecond()) }

// nameOf is what the name of the second store ends with, in the log and in metrics.
const nameOf = "-per-second"

// Divide opens a second store, which then decides the limits per second of main. Main's Caps become what both promise.
// The caller runs both stacks, and closes main, which closes the second one.
func Divide(ctx context.Context, main *stack.Stack, url string, opt stack.Options) (*stack.Stack, error) {
	caps, err := stack.Caps(url)
	if err != nil {
		return nil, err
	}
	if main.Caps.Title() != caps.Title() || caps.Local {
		return nil, fmt.Errorf("want a store elsewhere of the kind %s, not %s", main.Caps.Title(), caps.Title())
	}
	opt.NameSuffix = nameOf
	second, err := stack.New(ctx, url, opt)
	if err != nil {
		return nil, err
	}
	main.Caps.Atomicity = backends.PerPartition
	main.Caps.MaxOps = min(main.Caps.MaxOps, caps.MaxOps)
	main.Caps.ServerClock = main.Caps.ServerClock && caps.ServerClock
	main.Backend = &split{main.Backend, second.Backend, second.Close, opt.Panics}
	return second, nil
}
