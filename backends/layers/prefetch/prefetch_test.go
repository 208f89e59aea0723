package prefetch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// sharable are the algorithms that units can be held of.
var sharable = []limit.Algorithm{limit.FixedWindow, limit.SlidingLog, limit.SlidingWindow, limit.TokenBucket}

// TestOneTripForMany: one trip for as many ops as the share, and every
// answer of a lone replica is what the store would have said.
func TestOneTripForMany(t *testing.T) {
	for _, a := range sharable {
		t.Run(a.String(), func(t *testing.T) {
			r := newRig(t, Config{})
			o := op("k", newLimit(a, 100, time.Hour), 1, 10)
			model := memory.New(memory.Config{})
			for i := range 101 {
				want := make([]limit.Verdict, 1)
				model.Take(context.Background(), []limit.Request{{At: r.store.Clock(), Ops: []limit.Op{o}}}, want)
				got := r.want(strconv.Itoa(i), i < 100, i%10 == 0, o)
				if got.At != want[0].At || outcome(got).Remaining != outcome(want[0]).Remaining ||
					outcome(got).Retry > outcome(got).Reset {
					t.Fatalf("take %d: %+v, want %+v", i, got, want[0])
				}
				if a == limit.FixedWindow && outcome(got) != outcome(want[0]) {
					t.Fatalf("take %d: %+v, want %+v", i, got, want[0])
				}
				if held := r.held(o); i < 100 && held != int64(9-i%10) {
					t.Fatalf("take %d: %d are held", i, held)
				}
			}
			if trips := r.store.Calls.Load(); trips != 11 {
				t.Errorf("%d trips", trips)
			}
			if got, want := r.Stats(), (Stats{Hits: 90, Keys: 1, Taken: 90}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// Near the limit nothing is refused for the sake of what is taken ahead, and
// taking ahead is not tried again before there is room for it.
func TestNearTheLimit(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 14, time.Hour), 1, 10)
	for i := range 10 {
		r.want("first share", true, i == 0, o)
	}
	for i := range 4 {
		before := r.store.Requests.Load()
		r.want("near the limit", true, true, o)
		want := int64(1)
		if i == 0 {
			want = 2 // it is tried once
		}
		if n := r.store.Requests.Load() - before; n != want {
			t.Errorf("take %d near the limit: %d requests in one trip, want %d", i, n, want)
		}
	}
	if v := r.want("at the limit", false, true, o); outcome(v).Retry != outcome(v).Reset || outcome(v).Remaining != 0 {
		t.Errorf("%+v", v)
	}
	r.clock.Add(time.Hour)
	r.want("next window", true, true, o)
	r.holds("next window", o, 9, 4)
}

// Room that comes early, as when units are given back, is noticed.
func TestRoomComesBack(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 14, time.Hour), 1, 10)
	for range 11 {
		r.take(o)
	}
	r.holds("refused", o, 0, 3)
	r.want("not tried again", true, true, o)
	r.holds("not tried again", o, 0, 2)
	r.want("refund, whose answer says that there is room", true, true, cost(o, -10))
	r.want("taken ahead", true, true, o)
	r.holds("taken ahead", o, 9, 2)
	r.want("held", true, false, o)

	// Another replica gives back; the next answer says so.
	p := cost(o, 1)
	p.Key.Limit = "other"
	for range 11 {
		r.take(p)
	}
	r.replica().want("refund elsewhere", true, true, cost(p, -14))
	r.want("says that there is room", true, true, p)
	r.want("no take ahead yet, then one", true, true, p)
	r.holds("taken ahead", p, 9, 3)
}

// TestPartlyPaidRequestIsDecidedWhole: a request of which one op is paid here is
// admitted or refused as a whole.
func TestPartlyPaidRequestIsDecidedWhole(t *testing.T) {
	l, tight := newLimit(limit.FixedWindow, 100, time.Hour), newLimit(limit.FixedWindow, 1, time.Hour)
	plain := func(o limit.Op) limit.Op { return o }
	for _, c := range []struct {
		name             string
		here, there      func(limit.Op) limit.Op
		admitted         bool // when the other limit is full
		spent, remaining int64
	}{
		{"plain", plain, plain, false, 0, 99},
		{"each", each, plain, false, 1, 98},
		{"shadow", shadow, plain, false, 0, 99},
		{"other is each", plain, each, false, 0, 99},
		{"other is shadow", plain, shadow, true, 1, 98},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{})
			k, o := op("k", l, 1, 10), op("other", tight, 1, 0)
			r.take(k)
			r.store.Keep = true
			// The other limit has room.
			v := r.want("room", true, true, c.here(k), c.there(o))
			if v.Outcomes[0].Remaining != 98 || !v.Outcomes[1].Admitted || v.Outcomes[1].Remaining != 0 {
				t.Errorf("room: %+v", v)
			}
			if n := len(r.store.Kept()[0].Ops); n != 1 {
				t.Errorf("the store was sent %d ops", n)
			}
			r.holds("room", k, 8, 90)
			// It has none. The order of ops does not matter.
			for i, ops := range [][]limit.Op{{c.here(k), c.there(o)}, {c.there(o), c.here(k)}} {
				v = r.want("full", c.admitted, true, ops...)
				mine, other := v.Outcomes[i], v.Outcomes[1-i]
				spent := c.spent * int64(i+1)
				if want := c.remaining - 1 - c.spent*int64(i); !mine.Admitted || mine.Remaining != want {
					t.Errorf("full: %+v, want %d remaining", mine, want)
				}
				if other.Admitted || other.Remaining != 0 || other.Retry == 0 {
					t.Errorf("full, other op: %+v", other)
				}
				r.holds("full", k, 8-spent, 90)
			}
		})
	}
}

// A request whose limits are all held does not go to the store, however many
// they are.
func TestHeldLimitsNeedNoTrip(t *testing.T) {
	r := newRig(t, Config{})
	a, b := op("a", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10),
		op("b", newLimit(limit.TokenBucket, 50, time.Hour), 2, 5)
	r.want("first", true, true, a, b)
	r.holds("a", a, 9, 90)
	r.holds("b", b, 3, 45)
	v := r.want("held", true, false, a, cost(a, 3), b)
	if v.Outcomes[0].Remaining != 98 || v.Outcomes[1].Remaining != 95 || v.Outcomes[2].Remaining != 46 ||
		v.At != r.store.Clock() {
		t.Errorf("%+v", v)
	}
	r.holds("a", a, 5, 90)
	r.holds("b", b, 1, 45)
	r.want("one of them is not", true, true, a, b)
	r.holds("a", a, 4, 90)
	r.holds("b", b, 4, 40)
}

// Ops that share a key find what the earlier ones left.
func TestOpsOnOneKeyShareUnits(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 13, time.Hour), 1, 10)
	r.want("nothing held", true, true, o, o, o)
	r.holds("taken ahead once", o, 9, 1)
	r.want("eight", true, false, cost(o, 8))
	v := r.want("one here, one there", true, true, o, o)
	if v.Outcomes[0].Remaining != 1 || v.Outcomes[1].Remaining != 0 {
		t.Errorf("%+v", v)
	}
	r.holds("all spent", o, 0, 0)
	r.want("none", false, true, o, o)

	o = op("j", newLimit(limit.FixedWindow, 10, time.Hour), 1, 10)
	r.take(o)
	r.want("eight", true, false, cost(o, 8))
	v = r.want("one here, none there", false, true, o, o)
	if !v.Outcomes[0].Admitted || v.Outcomes[0].Remaining != 1 || v.Outcomes[1].Admitted {
		t.Errorf("%+v", v)
	}
	r.holds("given back", o, 1, 0)
}

// Cost zero asks whether there is one unit, here or there.
func TestAskTakesNothing(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 10, time.Hour), 1, 10)
	r.want("unused", true, true, cost(o, 0))
	r.holds("nothing is taken ahead for it", o, 0, 10)
	r.take(o)
	if v := r.want("held", true, false, cost(o, 0)); outcome(v).Remaining != 9 || outcome(v).Retry != 0 {
		t.Errorf("%+v", v)
	}
	r.want("with others", true, true, cost(o, 0), op("other", o.Limit, 1, 0))
	r.want("all", true, false, cost(o, 9))
	if v := r.want("spent", false, true, cost(o, 0)); outcome(v).Retry != outcome(v).Reset {
		t.Errorf("%+v", v)
	}
}

// Units are given back to the store, not to the held ones.
func TestRefundGoesToTheStore(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10)
	r.take(o)
	if v := r.want("one", true, true, cost(o, -1)); outcome(v).Remaining != 100 {
		t.Errorf("%+v", v)
	}
	r.holds("one", o, 9, 91)
	if v := r.want("more than was taken", true, true, cost(o, -1000)); outcome(v).Remaining != 100 {
		t.Errorf("%+v", v) // never more than there can be
	}
	r.holds("more than was taken", o, 9, 100)
}

// Held units pay for an op in full or not at all.
func TestHeldUnitsPayAllOrNothing(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10)
	r.want("as large as the share", true, true, cost(o, 10))
	r.holds("nothing is taken ahead for it", o, 0, 90)
	r.want("three", true, true, cost(o, 3))
	r.holds("ten in all", o, 7, 80)
	r.want("three", true, false, cost(o, 3))
	r.want("more than is held", true, true, cost(o, 5))
	r.holds("five and what is missing", o, 9, 70)
	r.want("eight", true, false, cost(o, 8))
	r.want("more than the share", true, true, cost(o, 60))
	r.holds("a large one takes no held units", o, 1, 10)
	if v := r.want("no room", false, true, cost(o, 11)); outcome(v).Remaining != 11 {
		t.Errorf("%+v", v)
	}
	if v := r.want("never", false, true, cost(o, 101)); outcome(v).Retry != limit.Never {
		t.Errorf("%+v", v)
	}
}

// Units of a window expire with it, by the store's clock and however long the
// trip took; those of other limits when they do not count any more.
func TestHeldUnitsLapseWithTheirWindow(t *testing.T) {
	const us, rtt = time.Microsecond, time.Second
	slowBucket := limit.MustNew(limit.Spec{Algorithm: limit.TokenBucket, Max: 1000, Window: time.Second, Burst: 100_000})
	for _, c := range []struct {
		name  string
		limit *limit.Limit
		at    time.Duration // when the store decides, after a whole hour
		held  time.Duration // from then on
	}{
		{"fixed window", newLimit(limit.FixedWindow, 100, time.Hour), 10 * time.Minute, 50 * time.Minute},
		{"end of a fixed window", newLimit(limit.FixedWindow, 100, time.Minute), time.Minute - 2*us, 2 * us},
		{"sliding log", newLimit(limit.SlidingLog, 100, time.Minute), 10 * time.Second, time.Minute},
		{"sliding window", newLimit(limit.SlidingWindow, 100, time.Minute), 10 * time.Second, 2*time.Minute - 10*time.Second},
		{"fast bucket", newLimit(limit.TokenBucket, 100, time.Second), 0, time.Minute},
		{"slow bucket", slowBucket, 0, 100 * time.Second},
	} {
		// Which part of the trip takes so long. Time is reckoned from its start:
		// after a slow way there the store is asked that much earlier.
		for _, there := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", c.name, there), func(t *testing.T) {
				r := newRig(t, Config{})
				o := op("k", c.limit, 1, 10)
				slow := func([]limit.Request) { r.clock.Add(rtt) }
				r.clock.Add(time.Hour - storeAhead + c.at)
				if there {
					r.clock.Add(-rtt)
					r.store.Trip = slow
				} else {
					r.store.Reply = slow
				}
				r.Backend = New(r.store, r.store.Caps(), Config{}, r.clock.Now)
				decided := r.want("first", true, true, o).At
				r.store.Trip, r.store.Reply = nil, nil
				if left := c.held - rtt - us; left >= 0 {
					r.clock.Add(left)
					v := r.want("held", true, false, o)
					if v.At != decided.Add(c.held-us) {
						t.Errorf("decided at %d, expires at %d", v.At, decided.Add(c.held))
					}
					if c.limit.Algorithm() == limit.FixedWindow && outcome(v).Reset != us {
						t.Errorf("%+v", v)
					}
					r.clock.Add(us)
				}
				r.want("expired, as far as is known", true, true, o)
				if there { // the store said that it has not
					r.want("held again", true, false, o)
				}
				if expired := r.Stats().Expired; there != (expired == 0) {
					t.Errorf("%d units have expired", expired)
				}
			})
		}
	}
}

// A store that tells time coarsely may be further than it says.
func TestCoarseStoreClockEndsUnitsEarly(t *testing.T) {
	r := newRig(t, Config{})
	r.store.Precision = time.Millisecond
	r.Backend = New(r.store, r.store.Caps(), Config{}, r.clock.Now)
	o := op("k", newLimit(limit.FixedWindow, 100, time.Second), 1, 10)
	r.clock.Add(997*time.Millisecond + 400*time.Microsecond)
	r.take(o)
	r.clock.Add(time.Millisecond)
	if v := r.want("held", true, false, o); v.At%1000 != 0 || outcome(v).Reset != 2*time.Millisecond {
		t.Errorf("%+v", v)
	}
	r.clock.Add(time.Millisecond + 700*time.Microsecond)
	r.want("next window", true, true, o)
	r.holds("next window", o, 1, 98)
}

// What goes wrong: nothing is held, and what was paid here is given back.
func TestFailedRequestHoldsNothing(t *testing.T) {
	l := newLimit(limit.FixedWindow, 100, time.Hour)
	for name, why := range map[string]error{
		"unknown":     backends.ErrUnavailable,
		"not applied": fmt.Errorf("%w: %w", backends.ErrUnavailable, backends.ErrNotApplied),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			k, o := op("k", l, 1, 10), op("other", l, 1, 0)
			fails := func(req *limit.Request) error { return why }
			take := func(ops ...limit.Op) error {
				out := make([]limit.Verdict, 1)
				r.Take(context.Background(), []limit.Request{{Ops: ops}}, out)
				return out[0].Err
			}
			r.store.Fail = fails
			if err := take(k); !errors.Is(err, why) || r.held(k) != 0 {
				t.Errorf("error %v, %d held", err, r.held(k))
			}
			r.store.Fail = nil
			r.want("good again", true, true, k)
			if r.held(k) != 9 {
				t.Errorf("%d held", r.held(k))
			}
			r.store.Fail = fails
			r.want("needs no store", true, false, k)
			if err := take(k, each(k), o); !errors.Is(err, why) || r.held(k) != 8 {
				t.Errorf("error %v, %d held", err, r.held(k))
			}
			// What is taken ahead fails alone.
			p := op("p", l, 1, 10)
			r.store.Fail = func(req *limit.Request) error {
				if req.Ops[0].Cost == 9 {
					return why
				}
				return nil
			}
			r.want("alone", true, true, p)
			if r.held(p) != 0 {
				t.Errorf("%d held", r.held(p))
			}
		})
	}
}

// What has no business here goes to the store as it is.
func TestBadRequestsGoToTheStoreUnchanged(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 70)
	r.take(o)
	many := make([]limit.Op, r.store.Caps().MaxOps+1)
	for i := range many {
		many[i] = o
	}
	many[0] = unshared(o) // which alone would not be too many
	long := o
	long.Key.Limit = string(make([]byte, backends.MaxKeyLen+1))
	none := o
	none.Limit = nil
	out := make([]limit.Verdict, 1)
	for name, req := range map[string]limit.Request{
		"no ops": {}, "too many ops": {Ops: many}, "long key": {Ops: []limit.Op{long}}, "no limit": {Ops: []limit.Op{none}},
		"one of two": {Ops: []limit.Op{o, none}},
	} {
		// The store of these tests checks like any other, but by another clock.
		r.store.Fail = func(req *limit.Request) error { caps := r.store.Caps(); return caps.CheckRequest(req) }
		reqs := []limit.Request{req, {Ops: []limit.Op{o}}}
		out = append(out[:0], limit.Verdict{}, limit.Verdict{})
		held := r.held(o)
		r.Take(context.Background(), reqs, out)
		if out[0].Err == nil || !errors.Is(out[0].Err, backends.ErrNotApplied) {
			t.Errorf("%s: error %v", name, out[0].Err)
		}
		if out[1].Err != nil || r.held(o) != held-1 {
			t.Errorf("%s: its neighbour: %+v, %d held", name, out[1], r.held(o))
		}
	}
	if r.Stats().Keys != 1 {
		t.Errorf("%+v", r.Stats())
	}
}

// A forgotten key is not held either, nor what is on its way.
func TestForgottenKeyIsNotHeld(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, Config{})
	o, beside := op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10),
		op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10)
	beside.Key.Limit = "beside"
	r.take(o)
	r.take(beside)
	if err := r.Forget(ctx, []limit.Key{o.Key}); err != nil {
		t.Fatal(err)
	}
	r.holds("forgotten", o, 0, 100)
	r.holds("beside", beside, 9, 90)
	r.store.Reply = func([]limit.Request) {
		r.store.Reply = nil
		if err := r.Forget(ctx, []limit.Key{o.Key}); err != nil {
			t.Fatal(err)
		}
	}
	r.want("under way", true, true, o)
	r.holds("under way", o, 0, 100)
	r.want("again", true, true, o)
	r.holds("again", o, 9, 90)
	// Taken after what was held has been dropped, and before the store forgets.
	r.store.Trip = func([]limit.Request) {
		r.store.Trip = nil
		r.want("held no more", true, true, o)
	}
	if err := r.Forget(ctx, []limit.Key{o.Key}); err != nil {
		t.Fatal(err)
	}
	r.holds("overtaken", o, 0, 100)
	r.want("again", true, true, o)
	// Paid here, forgotten while the rest of the request was refused.
	tight := op("tight", newLimit(limit.FixedWindow, 0, time.Hour), 1, 0)
	r.store.Reply = func([]limit.Request) {
		r.store.Reply = nil
		_ = r.Forget(ctx, []limit.Key{o.Key})
	}
	r.want("refused", false, true, o, tight)
	r.holds("refused", o, 0, 100)
	if got := r.Stats(); got.Expired != 9+9+9+9+9 || got.Keys != 1 {
		t.Errorf("%+v", got)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := r.Forget(cancelled, nil); !errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}

// The window may end while a request is under way for which units are lent.
func TestWindowEndsUnderWay(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10)
	tight := op("tight", newLimit(limit.FixedWindow, 0, time.Hour), 1, 0)
	r.take(o)
	out := make([]limit.Verdict, 1)
	r.store.Reply = func([]limit.Request) {
		r.store.Reply = nil
		r.clock.Add(time.Hour)
		r.want("next window", true, true, o)
		r.holds("the last window's have expired", o, 0, 99)
		r.want("next window", true, true, o)
		r.holds("no more than ten with those that are lent", o, 4, 94)
	}
	r.Take(context.Background(), []limit.Request{{Ops: []limit.Op{cost(o, 5), tight}}}, out)
	if out[0].Err != nil || out[0].Admitted {
		t.Fatalf("%+v", out[0])
	}
	r.holds("those do not come back", o, 4, 94)
	if got := r.Stats(); got.Expired != 4+5 {
		t.Errorf("%+v", got)
	}
}

// The window may end between an op and what is taken ahead with it.
func TestWindowEndsWithinTrip(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10)
	r.take(o)
	r.want("spent", true, false, cost(o, 5))
	r.store.Fail = func(*limit.Request) error {
		r.store.Fail = nil
		r.clock.Add(time.Hour)
		return nil
	}
	r.want("five are taken with five left", true, true, cost(o, 5))
	r.holds("of the old window none are left", o, 5, 95)
}

// What the store said to the later of two overlapping takes counts.
func TestOvertakenAnswerDoesNotCount(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10)
	r.store.Reply = func([]limit.Request) {
		r.store.Reply = nil
		r.clock.Add(time.Second)
		r.want("overtakes", true, true, cost(o, 50))
	}
	r.want("overtaken", true, true, o)
	if v := r.want("held", true, false, o); outcome(v).Remaining != 48 {
		t.Errorf("%+v", v)
	}
}

// Limits of other figures on one key, as after a change of rules, share
// nothing but the key.
func TestLimitsOnOneKey(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10)
	same, lower := o, o
	same.Limit = newLimit(limit.FixedWindow, 100, time.Hour).WithShare(10)
	lower.Limit = newLimit(limit.FixedWindow, 40, time.Hour).WithShare(10)
	r.take(o)
	r.want("like it", true, false, same)
	r.want("lower", true, true, lower)
	r.holds("as it was", o, 8, 80)
	r.holds("lower", lower, 9, 20)
	r.want("lower", true, false, lower)
	smaller := o
	smaller.Limit = smaller.Limit.WithShare(2)
	r.want("smaller share", true, false, smaller)
	r.want("no share any more", true, true, unshared(o))
	r.want("and again", true, false, o)
	if err := r.Forget(context.Background(), []limit.Key{o.Key}); err != nil || r.Stats().Keys != 0 {
		t.Errorf("error %v, %+v", err, r.Stats())
	}
}

// Beyond MaxKeys keys are not shared, and nobody's units are dropped for them;
// what is not in use makes room.
func TestKeysBeyondMaxKeysAreNotShared(t *testing.T) {
	r := newRig(t, Config{MaxKeys: 3})
	l := newLimit(limit.FixedWindow, 100, 24*time.Hour)
	key := func(i int) limit.Op { return op(strconv.Itoa(i), l, 1, 10) }
	for i := range 5 {
		r.want("first", true, true, key(i))
	}
	for i := range 5 {
		r.want("second", true, i >= 3, key(i))
	}
	if got := r.Stats(); got.Keys != 3 || got.Full != 4 || got.Expired != 0 {
		t.Errorf("%+v", got)
	}
	r.clock.Add(idle - 1)
	r.want("in use", true, false, key(0))
	r.want("still full", true, true, key(3))
	r.clock.Add(1)
	r.want("room of the one longest unused", true, true, key(3))
	r.want("held", true, false, key(3))
	r.want("in use", true, false, key(0))
	r.want("made room", true, true, key(1))
	if got := r.Stats(); got.Keys != 3 || got.Expired != 16 {
		t.Errorf("%+v", got)
	}
	// What is over goes by itself, and all of it; but only when it is certain to be over.
	r.clock.Add(24*time.Hour + longTrip)
	r.take(key(9))
	if got := r.Stats(); got.Keys != 1 {
		t.Errorf("%+v", got)
	}
	r = newRig(t, Config{})
	short := func(i int) limit.Op { // all in one shard: others are not looked at
		o := op("short", newLimit(limit.FixedWindow, 100, time.Second), 1, 10)
		o.Key.Limit = strconv.Itoa(i)
		return o
	}
	keys := func(what string, want int) {
		t.Helper()
		if got := r.Stats().Keys; got != want {
			t.Errorf("%s: %d keys, want %d", what, got, want)
		}
	}
	r.take(short(0))
	r.clock.Add(time.Second + longTrip - time.Microsecond)
	r.take(short(1))
	keys("perhaps not over", 2)
	r.clock.Add(time.Microsecond)
	r.take(short(2))
	keys("over", 2)
	r.store.Reply = func([]limit.Request) {
		r.store.Reply = nil
		r.clock.Add(time.Second + longTrip)
		r.take(short(3))
		keys("one of two is over, some of the other is lent", 2)
	}
	r.want("lent", false, true, short(2), op("none", newLimit(limit.FixedWindow, 0, time.Second), 1, 0))
	r.take(short(4))
	keys("no longer lent", 2)
}

// Instants that callers give: windows are those of the instants, whatever the
// time is.
func TestGivenInstantsChooseTheWindow(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 100, time.Minute), 1, 10)
	start := limit.InstantOf(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC))
	want := func(what string, at limit.Instant, remaining int64, asked bool) {
		t.Helper()
		before := r.store.Calls.Load()
		out := make([]limit.Verdict, 1)
		r.Take(context.Background(), []limit.Request{{At: at, Ops: []limit.Op{o}}}, out)
		if out[0].Err != nil || out[0].At != at || !out[0].Admitted || outcome(out[0]).Remaining != remaining ||
			asked != (r.store.Calls.Load() != before) {
			t.Errorf("%s: %+v", what, out[0])
		}
		if end := start + 60e6; at < end && at.Add(outcome(out[0]).Reset) != end {
			t.Errorf("%s: %+v, window ends at %d", what, out[0], end)
		}
	}
	want("first", start+5e6, 99, true)
	want("held", start+5e6, 98, false)
	want("earlier", start+1e6, 97, false)
	want("before the window, which counts as in it", start-1e6, 96, false)
	want("last of the window", start+60e6-1, 95, false)
	want("next window", start+60e6, 99, true)
	r.want("the store's clock is another matter", true, true, o)
	r.want("and shared by itself", true, false, o)
}

// TestRepeatedLeaseIsNotChargedAgain: a request whose lease was granted before is not charged
// again, neither there nor here.
func TestRepeatedLeaseIsNotChargedAgain(t *testing.T) {
	r := newRig(t, Config{})
	o := op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10)
	flight := op("flight", newLimit(limit.Concurrency, 5, time.Minute), 1, 10)
	flight.Holder = "x"
	r.take(o)
	r.want("first", true, true, o, flight)
	r.holds("first", o, 8, 90)
	for _, ops := range [][]limit.Op{{o, flight}, {flight, each(o)}} {
		r.want("again", true, true, ops...)
		r.holds("again", o, 8, 90)
	}
	flight.Holder = "y"
	r.want("another", true, true, flight, o)
	r.holds("another", o, 7, 90)
}

// Slices: each request finds what the earlier ones left, and the units for all
// of it come in one trip.
func TestRequestsOfASliceShareOneTrip(t *testing.T) {
	r := newRig(t, Config{})
	l := newLimit(limit.FixedWindow, 24, time.Hour)
	o, other := op("k", l, 1, 10), op("other", l, 1, 0)
	send := func(reqs ...limit.Request) (admitted int) {
		t.Helper()
		out := make([]limit.Verdict, len(reqs))
		r.Take(context.Background(), reqs, out)
		for i := range out {
			if out[i].Err != nil || len(out[i].Outcomes) != len(reqs[i].Ops) {
				t.Fatalf("request %d: %+v", i, out[i])
			}
			if out[i].Admitted {
				admitted++
			}
		}
		return admitted
	}
	one := func(ops ...limit.Op) limit.Request { return limit.Request{Ops: ops} }
	if n := send(one(o), one(o), one(other), one(o)); n != 4 || r.store.Calls.Load() != 1 || r.store.Requests.Load() != 5 {
		t.Errorf("%d admitted in %d trips", n, r.store.Calls.Load())
	}
	r.holds("taken ahead once", o, 9, 12)
	if n := send(one(o), one(cost(o, 8)), one(o), one(o, other)); n != 4 || r.store.Calls.Load() != 2 {
		t.Errorf("%d admitted in %d trips", n, r.store.Calls.Load())
	}
	r.holds("two paid here, two there", o, 9, 1)
	// Within one slice what is taken ahead comes last and so refuses nobody.
	q := op("q", newLimit(limit.FixedWindow, 5, time.Hour), 1, 5)
	if n := send(one(q), one(q), one(q), one(q), one(q), one(q)); n != 5 {
		t.Errorf("%d admitted of 5", n)
	}
	r.holds("none left to take ahead", q, 0, 0)
}

// Without a share nothing is kept, and the store gets what the caller sent.
func TestUnsharedOpsPassUnchanged(t *testing.T) {
	r := newRig(t, Config{})
	l := newLimit(limit.FixedWindow, 10, time.Hour)
	for i := range int64(2) {
		o := op("k", l, 1, i)
		r.want("first", true, true, o)
		r.want("second", true, true, o)
	}
	flight := op("k", newLimit(limit.Concurrency, 5, time.Minute), 1, 10)
	flight.Key.Limit, flight.Holder = "flight", "x"
	r.want("requests in flight", true, true, flight)
	flight.Holder = "y"
	r.want("requests in flight", true, true, flight)
	if got := r.Stats(); got != (Stats{}) {
		t.Errorf("%+v", got)
	}
	if n := r.store.Requests.Load(); n != 6 {
		t.Errorf("%d requests", n)
	}
}

// A closed backend holds nothing and has closed the store.
func TestClosedBackendHoldsNothing(t *testing.T) {
	r := newRig(t, Config{})
	r.take(op("k", newLimit(limit.FixedWindow, 100, time.Hour), 1, 10))
	if err := r.Ping(context.Background()); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got := r.Stats(); got.Keys != 0 || got.Expired != 9 {
		t.Errorf("%+v", got)
	}
}

// TestHeldUnitsPayWithoutAllocation: what is paid here costs no memory.
func TestHeldUnitsPayWithoutAllocation(t *testing.T) {
	if raceEnabled() {
		t.Skip("the race detector allocates")
	}
	r := newRig(t, Config{})
	l := newLimit(limit.FixedWindow, 1_000_000, time.Hour)
	for name, ops := range map[string][]limit.Op{
		"one":   {op("a", l, 1, 100_000)},
		"three": {op("b", l, 1, 100_000), op("c", l, 1, 100_000), op("d", l, 1, 100_000)},
		"none":  {op("e", l, 0, 0)}, // measures the store of this test, too
	} {
		reqs, out := []limit.Request{{Ops: ops}}, make([]limit.Verdict, 1)
		r.Take(context.Background(), reqs, out)
		before := r.store.Calls.Load()
		n := testing.AllocsPerRun(1000, func() { r.Take(context.Background(), reqs, out) })
		if asked := r.store.Calls.Load() != before; asked != (name == "none") {
			t.Errorf("%s: asked the store: %v", name, asked)
		}
		if n != 0 && name != "none" {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
