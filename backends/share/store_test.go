package share

import (
	"context"
	"fmt"
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

func (c *clock) now() time.Time      { return time.Unix(0, c.ns.Load()) }
func (c *clock) add(d time.Duration) { c.ns.Add(int64(d)) }

// A store is a memory backend that behaves like a remote one: it has a clock
// that all share, half a minute ahead of the callers', and takes no calls that
// are over.
type store struct {
	memory    *memory.Backend
	now       func() time.Time
	precision time.Duration

	trip  func(reqs []limit.Request) // before the store decides, if not nil
	reply func(reqs []limit.Request) // before the answer arrives, if not nil
	fail  func(req *limit.Request) error

	calls, requests atomic.Int64
	mu              sync.Mutex
	seen            []limit.Request // of the last call; ops are not copied
}

const storeAhead = 30 * time.Second

func newStore(now func() time.Time) *store {
	return &store{memory: memory.New(memory.Config{}), now: now, precision: time.Microsecond}
}

func (s *store) caps() *backends.Caps {
	caps := memory.Caps()
	caps.ServerClock, caps.Local, caps.Precision = true, false, s.precision
	for a, c := range caps.Algorithms {
		c.Trips = 1
		caps.Algorithms[a] = c
	}
	return &caps
}

func (s *store) clock() limit.Instant { return limit.InstantOf(s.now().Add(storeAhead)) }

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
	s.calls.Add(1)
	s.requests.Add(int64(len(reqs)))
	s.mu.Lock()
	s.seen = append(s.seen[:0], reqs...)
	s.mu.Unlock()
	if s.trip != nil {
		s.trip(reqs)
	}
	for i := range reqs {
		req := reqs[i]
		if req.At == 0 {
			req.At = s.clock()
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

// A rig is a backend before a store on a clock that the test moves.
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

// replica is another one before the same store.
func (r *rig) replica() *rig {
	return &rig{T: r.T, Backend: New(r.store, r.store.caps(), Config{}, r.clock.now), store: r.store, clock: r.clock}
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
	if len(out[0].Outcomes) != len(ops) {
		r.Fatalf("%d outcomes for %d ops", len(out[0].Outcomes), len(ops))
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

// held returns what is held for o, and checks the bound on it.
func (r *rig) held(o limit.Op) int64 {
	r.Helper()
	s := r.shard(&o.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.find(&o, false)
	if h == nil {
		return 0
	}
	if all := h.left + h.lent + h.asked; all < 0 || all >= o.Share || h.left < 0 || h.lent < 0 || h.asked < 0 {
		r.Errorf("%d are held, %d lent, %d asked for, with a share of %d", h.left, h.lent, h.asked, o.Share)
	}
	return h.left
}

// inStore returns what the store has left for o.
func (r *rig) inStore(o limit.Op) int64 {
	r.Helper()
	o.Cost = 0
	out := make([]limit.Verdict, 1)
	r.store.memory.Take(context.Background(), []limit.Request{{At: r.store.clock(), Ops: []limit.Op{o}}}, out)
	if out[0].Err != nil {
		r.Fatal(out[0].Err)
	}
	return out[0].Outcomes[0].Remaining
}

// holds checks what is held and what the store has left.
func (r *rig) holds(what string, o limit.Op, here, there int64) {
	r.Helper()
	if h, s := r.held(o), r.inStore(o); h != here || s != there {
		r.Errorf("%s: %d are held and %d left in the store, want %d and %d", what, h, s, here, there)
	}
}

func newLimit(a limit.Algorithm, most int64, window time.Duration) *limit.Limit {
	return limit.MustNew(limit.Spec{Algorithm: a, Max: most, Window: window})
}

func op(key string, l *limit.Limit, cost, share int64) limit.Op {
	return limit.Op{Key: limit.Key{Group: key, Limit: "l"}, Limit: l, Cost: cost, Share: share}
}

func shadow(o limit.Op) limit.Op            { o.Shadow = true; return o }
func each(o limit.Op) limit.Op              { o.Each = true; return o }
func cost(o limit.Op, n int64) limit.Op     { o.Cost = n; return o }
func unshared(o limit.Op) limit.Op          { o.Share = 0; return o }
func outcome(v limit.Verdict) limit.Outcome { return v.Outcomes[0] }
