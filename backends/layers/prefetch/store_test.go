package prefetch

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// storeAhead is how far the store's clock is ahead of the callers'.
const storeAhead = 30 * time.Second

func newStore(now func() time.Time) *remote.Store {
	s := remote.NewStore(memory.New(memory.Config{}), memory.Caps(), now)
	s.Ahead = storeAhead
	return s
}

// A rig is a backend before a store on a clock that the test moves.
type rig struct {
	*testing.T
	*Backend
	store *remote.Store
	clock *remote.Clock
}

func newRig(t *testing.T, cfg Config) *rig {
	c := remote.NewClock()
	s := newStore(c.Now)
	return &rig{T: t, Backend: New(s, s.Caps(), cfg, c.Now), store: s, clock: c}
}

// replica is another one before the same store.
func (r *rig) replica() *rig {
	return &rig{T: r.T, Backend: New(r.store, r.store.Caps(), Config{}, r.clock.Now), store: r.store, clock: r.clock}
}

// take sends one request and reports whether the store was asked.
func (r *rig) take(ops ...limit.Op) (v limit.Verdict, asked bool) {
	r.Helper()
	return r.store.Ask(r.T, r.Backend, ops...)
}

// want takes and checks what becomes of it.
func (r *rig) want(what string, admitted, asked bool, ops ...limit.Op) limit.Verdict {
	r.Helper()
	return r.store.Want(r.T, r.Backend, what, admitted, asked, ops...)
}

// held returns the units held for o, and checks their bound.
func (r *rig) held(o limit.Op) int64 {
	r.Helper()
	s := r.shard(&o.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.find(&o, false)
	if h == nil {
		return 0
	}
	if all := h.left + h.lent + h.asked; all < 0 || all >= o.Limit.Share() || h.left < 0 || h.lent < 0 || h.asked < 0 {
		r.Errorf("%d are held, %d lent, %d asked for, with a share of %d", h.left, h.lent, h.asked, o.Limit.Share())
	}
	return h.left
}

// inStore returns what the store has left for o.
func (r *rig) inStore(o limit.Op) int64 {
	r.Helper()
	o.Cost = 0
	out := make([]limit.Verdict, 1)
	r.store.Memory.Take(context.Background(), []limit.Request{{At: r.store.Clock(), Ops: []limit.Op{o}}}, out)
	if out[0].Err != nil {
		r.Fatal(out[0].Err)
	}
	return out[0].Outcomes[0].Remaining
}

// holds checks the held units and those that the store has left.
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
	return limit.Op{Key: limit.Key{Group: key, Limit: "l"}, Limit: l.WithShare(share), Cost: cost}
}

func shadow(o limit.Op) limit.Op            { o.Shadow = true; return o }
func each(o limit.Op) limit.Op              { o.Each = true; return o }
func cost(o limit.Op, n int64) limit.Op     { o.Cost = n; return o }
func unshared(o limit.Op) limit.Op          { o.Limit = o.Limit.WithShare(0); return o }
func outcome(v limit.Verdict) limit.Outcome { return v.Outcomes[0] }
