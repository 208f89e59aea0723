package denycache

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

func acquire(key string, l *limit.Limit, holder string) limit.Op {
	o := op(key, l, 1)
	o.Holder = holder
	return o
}

func release(key string, l *limit.Limit, holder string) limit.Op {
	o := op(key, l, -1)
	o.Holder = holder
	return o
}

// TestRequestsInFlightAreAlwaysAsked: whether a request in flight has room is asked each
// time, as another may have ended on another replica.
func TestRequestsInFlightAreAlwaysAsked(t *testing.T) {
	r := newRig(t, time.Hour)
	other := r.replica(time.Hour)
	l := newLimit(limit.Concurrency, 1, time.Minute)
	none := newLimit(limit.Concurrency, 0, time.Minute)
	r.want("first", true, true, acquire("k", l, "a"))
	for range 3 {
		r.want("full", false, true, acquire("k", l, "b"))
		r.want("asked", false, true, op("k", l, 0))
		r.want("never", false, true, acquire("k", none, "b"))
	}
	if n := r.stats().entries; n != 0 {
		t.Errorf("%d refusals are kept", n)
	}
	other.want("ended elsewhere", true, true, release("k", l, "a"))
	r.want("room", true, true, acquire("k", l, "b"))
	r.want("renewed", true, true, acquire("k", l, "b"))
	r.clock.Add(time.Minute)
	r.want("expired", true, true, acquire("k", l, "c"))
}

// TestInFlightBesideOthers: what is known of other limits does not answer a
// request that also wants a lease, and is learnt from it as ever.
func TestInFlightBesideOthers(t *testing.T) {
	r := newRig(t, time.Hour)
	l := newLimit(limit.Concurrency, 5, time.Hour)
	tight := op("tight", newLimit(limit.FixedWindow, 1, time.Hour), 1)
	r.want("granted", true, true, acquire("k", l, "a"), tight)
	r.want("refused, and learnt", false, true, acquire("k", l, "b"), tight)
	r.want("known", false, false, tight)
	v := r.want("with a lease", false, true, acquire("k", l, "b"), tight)
	if !v.Outcomes[0].Admitted || v.Outcomes[0].InFlight != 1 || v.Outcomes[0].Held {
		t.Errorf("a refused request: %+v", v)
	}
	v = r.want("granted before", true, true, acquire("k", l, "a"), tight)
	if !v.Outcomes[0].Held || !v.Outcomes[1].Admitted {
		t.Errorf("a request that was granted before: %+v", v)
	}
	r.want("known all the same", false, false, tight)
	r.want("a shadow", false, true, shadow(acquire("k", l, "c")), tight)
	r.want("with a release", false, true, release("k", l, "a"), tight)
	if v := r.want("not released", true, true, op("k", l, 0)); v.Outcomes[0].InFlight != 1 {
		t.Errorf("a refused request has released: %+v", v)
	}
}

// TestInFlightInSlice: a slice of both kinds is answered in its order.
func TestInFlightInSlice(t *testing.T) {
	r := newRig(t, time.Hour)
	l := newLimit(limit.Concurrency, 1, time.Hour)
	known := op("known", newLimit(limit.SlidingLog, 1, time.Hour), 1)
	r.exhaust(known)
	reqs := []limit.Request{
		{Ops: []limit.Op{known}}, {Ops: []limit.Op{acquire("k", l, "a")}}, {Ops: []limit.Op{acquire("k", l, "b")}},
		{Ops: []limit.Op{release("k", l, "a")}}, {Ops: []limit.Op{known}}, {Ops: []limit.Op{acquire("k", l, "b")}},
	}
	out := make([]limit.Verdict, len(reqs))
	before := r.store.Requests.Load()
	r.Take(t.Context(), reqs, out)
	for i, want := range []bool{false, true, false, true, false, true} {
		if out[i].Err != nil || out[i].Admitted != want {
			t.Errorf("request %d: %+v, want it admitted %v", i, out[i], want)
		}
	}
	if n := r.store.Requests.Load() - before; n != 4 || r.stats().hits != 2 {
		t.Errorf("%d requests reached the store, %d were answered here", n, r.stats().hits)
	}
}
