package denycache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// A clock is one that tests move.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ns.Store(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time       { return time.Unix(0, c.ns.Load()) }
func (c *clock) add(d time.Duration)  { c.ns.Add(int64(d)) }
func (c *clock) micro() limit.Instant { return limit.InstantOf(c.now()) }

// A store is a memory backend that behaves like a remote one: it has a clock
// that all share, a precision, and takes no calls that are over. Several
// handles may share one.
type store struct {
	memory    *memory.Backend
	now       func() time.Time
	precision time.Duration
	atomicity backends.Atomicity

	trip  func(reqs []limit.Request) // before the store decides, if not nil
	reply func(reqs []limit.Request) // before the answer arrives, if not nil
	fail  func(req *limit.Request) error

	calls, requests atomic.Int64

	mu   sync.Mutex
	seen []limit.Request // if keep
	keep bool
}

func newStore(now func() time.Time) *store {
	return &store{memory: memory.New(memory.Config{}), now: now, precision: time.Microsecond, atomicity: backends.Whole}
}

func (s *store) caps() *backends.Caps {
	caps := memory.Caps()
	caps.ServerClock, caps.Local, caps.Precision, caps.Atomicity = true, false, s.precision, s.atomicity
	for a, c := range caps.Algorithms {
		c.Trips = 1
		caps.Algorithms[a] = c
	}
	return &caps
}

func over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w: %w", backends.ErrUnavailable, backends.ErrNotApplied, err)
	}
	return nil
}

func (s *store) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if err := over(ctx); err != nil {
		backends.Fail(out, err)
		return
	}
	s.note(reqs)
	if s.trip != nil {
		s.trip(reqs)
	}
	for i := range reqs {
		req := reqs[i]
		if req.At == 0 {
			req.At = limit.InstantOf(s.now())
		}
		req.At -= req.At % limit.Instant(s.precision.Microseconds())
		s.memory.Take(ctx, []limit.Request{req}, out[i:i+1])
		if s.fail != nil {
			if err := s.fail(&req); err != nil {
				backends.Fail(out[i:i+1], err)
			}
		}
	}
	if s.reply != nil {
		s.reply(reqs)
	}
}

func (s *store) note(reqs []limit.Request) {
	s.calls.Add(1)
	s.requests.Add(int64(len(reqs)))
	if !s.keep {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range reqs {
		s.seen = append(s.seen, limit.Request{At: reqs[i].At, Ops: slices.Clone(reqs[i].Ops)})
	}
}

func (s *store) Ping(ctx context.Context) error { return over(ctx) }
func (s *store) Close() error                   { return nil }

func (s *store) Forget(ctx context.Context, keys []limit.Key) error {
	if err := over(ctx); err != nil {
		return err
	}
	if s.trip != nil {
		s.trip(nil)
	}
	return s.memory.Forget(ctx, keys)
}

// A rig is a cache before a store on a clock that the test moves.
type rig struct {
	*testing.T
	*Backend
	store *store
	clock *clock
}

func newRig(t *testing.T, cfg Config) *rig {
	c := newClock()
	s := newStore(c.now)
	return &rig{T: t, Backend: New(s, s.caps(), cfg, c.now), store: s, clock: c}
}

// replica is another cache before the same store.
func (r *rig) replica(cfg Config) *rig {
	return &rig{T: r.T, Backend: New(r.store, r.store.caps(), cfg, r.clock.now), store: r.store, clock: r.clock}
}

// take sends one request and says whether the store was asked.
func (r *rig) take(ops ...limit.Op) (v limit.Verdict, asked bool) {
	r.Helper()
	before := r.store.calls.Load()
	out := make([]limit.Verdict, 1)
	r.Take(context.Background(), []limit.Request{{Ops: ops}}, out)
	if out[0].Err != nil {
		r.Fatal(out[0].Err)
	}
	return out[0], r.store.calls.Load() != before
}

// want takes and checks what becomes of it.
func (r *rig) want(what string, admitted, asked bool, ops ...limit.Op) limit.Verdict {
	r.Helper()
	v, a := r.take(ops...)
	if v.Admitted != admitted || a != asked {
		r.Errorf("%s: admitted %v, want %v; asked the store %v, want %v", what, v.Admitted, admitted, a, asked)
	}
	return v
}

// exhaust uses up what op's limit has left, and has it refused once.
func (r *rig) exhaust(op limit.Op) {
	r.Helper()
	for range 1000 {
		if v, _ := r.take(op); !v.Admitted {
			return
		}
	}
	r.Fatalf("%v is never refused", op.Limit)
}

func newLimit(a limit.Algorithm, most int64, window time.Duration) *limit.Limit {
	return limit.MustNew(limit.Spec{Algorithm: a, Max: most, Window: window})
}

func op(key string, l *limit.Limit, cost int64) limit.Op {
	return limit.Op{Key: limit.Key{Group: key, Limit: "l"}, Limit: l, Cost: cost}
}

func shadow(o limit.Op) limit.Op { o.Shadow = true; return o }
func each(o limit.Op) limit.Op   { o.Each = true; return o }
