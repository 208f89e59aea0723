package denycache

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

func newStore(now func() time.Time) *remote.Store {
	return remote.NewStore(memory.New(memory.Config{}), memory.Caps(), now)
}

// A rig is a cache before a store on a clock that the test moves.
type rig struct {
	*testing.T
	*Backend
	store *remote.Store
	clock *remote.Clock
}

func newRig(t *testing.T, maxAge time.Duration) *rig {
	c := remote.NewClock()
	r := &rig{T: t, store: newStore(c.Now), clock: c}
	return r.replica(maxAge)
}

// replica is another cache before the same store.
func (r *rig) replica(maxAge time.Duration) *rig {
	b := New(r.store, r.store.Caps(), r.clock.Now)
	b.maxAge = maxAge
	return &rig{T: r.T, Backend: b, store: r.store, clock: r.clock}
}

// flush forgets what is known.
func (r *rig) flush() { r.cache.init(100_000) }

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
