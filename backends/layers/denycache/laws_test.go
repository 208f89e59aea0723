package denycache

import (
	"context"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// A model is limit.Decide on a map that never forgets by itself.
type model map[limit.Key]limit.State

func (m model) decide(req *limit.Request, at limit.Instant) (v limit.Verdict) {
	states := make([]limit.State, len(req.Ops))
	for i := range req.Ops {
		states[i] = m[req.Ops[i].Key]
	}
	limit.Decide(states, req, at, &v, nil)
	for i := len(states) - 1; i >= 0; i-- { // the first one's counts
		m[req.Ops[i].Key] = states[i]
	}
	return v
}

// peek says what m would answer at instant at, and changes nothing.
func (m model) peek(req *limit.Request, at limit.Instant) (v limit.Verdict) {
	states := make([]limit.State, len(req.Ops))
	for i := range req.Ops {
		states[i] = m[req.Ops[i].Key]
		states[i].Log = slices.Clone(states[i].Log)
	}
	limit.Decide(states, req, at, &v, nil)
	return v
}

func (m model) clone() model {
	c := model{}
	for k, st := range m {
		st.Log = slices.Clone(st.Log)
		c[k] = st
	}
	return c
}

// A distant store is a model with a clock, some way off.
type distant struct {
	*remote.Store
	model model
	r     *rand.Rand
	clock *remote.Clock
	asked map[*limit.Op]bool // the first op of each request of the last Take
}

// way is the longest that a call takes, one way.
const way = 300 * time.Microsecond

func (d *distant) travel() { d.clock.Add(time.Duration(d.r.Int64N(int64(way)))) }

func (d *distant) Take(_ context.Context, reqs []limit.Request, out []limit.Verdict) {
	d.travel()
	for i := range reqs {
		d.asked[&reqs[i].Ops[0]] = true
		out[i] = d.model.decide(&reqs[i], d.clock.Micro())
	}
	d.travel()
}

func (d *distant) Forget(_ context.Context, keys []limit.Key) error {
	for _, k := range keys {
		delete(d.model, k)
	}
	return nil
}

// A traffic is random requests on few keys, whose limits change.
type traffic struct {
	r      *rand.Rand
	keys   []limit.Key
	limits [][]*limit.Limit
	now    []*limit.Limit // of each key
}

// change lets some keys have another limit. (Under two at once, units may come back
// unseen.)
func (f *traffic) change() {
	for i, of := range f.limits {
		f.now[i] = of[max(0, f.r.IntN(12)-10)%len(of)]
	}
}

func newTraffic(r *rand.Rand) *traffic {
	f := &traffic{r: r}
	for i := range 1 + r.IntN(4) {
		a := limit.Algorithms()[r.IntN(len(limit.Algorithms()))]
		var limits []*limit.Limit
		for range 1 + r.IntN(2) {
			s := limit.Spec{Algorithm: a, Max: 1 + r.Int64N(7), Window: time.Duration(1+r.Int64N(40)) * time.Millisecond}
			if a == limit.TokenBucket {
				s.Burst = 1 + r.Int64N(9)
			}
			limits = append(limits, limit.MustNew(s))
		}
		f.keys = append(f.keys, limit.Key{Group: strconv.Itoa(i), Limit: a.String()})
		f.limits = append(f.limits, limits)
	}
	f.now = make([]*limit.Limit, len(f.keys))
	return f
}

func (f *traffic) request() (req limit.Request) {
	for range 1 + max(0, f.r.IntN(5)-2) {
		i := f.r.IntN(len(f.keys))
		cost := int64(1)
		switch f.r.IntN(12) {
		case 0:
			cost = 0
		case 1:
			cost = -1 - f.r.Int64N(3)
		case 2, 3, 4:
			cost = 1 + f.r.Int64N(9)
		}
		req.Ops = append(req.Ops, limit.Op{Key: f.keys[i], Limit: f.now[i], Cost: cost,
			Shadow: f.r.IntN(8) == 0, Each: f.r.IntN(8) == 0})
	}
	return req
}

// With one replica, every answer of the store is passed on as it is, and what is
// refused here the store would refuse at the instant that the answer names: that
// is now, or later by no more than a round trip. What is said to have no room has
// none, and for no less time.
func TestAnswersAreTheStores(t *testing.T) {
	r := random.Rand(t, 2)
	var hits uint64
	rounds := random.Times(150, 400)
	for range rounds {
		c := remote.NewClock()
		d := &distant{Store: newStore(c.Now), model: model{}, r: r, clock: c}
		b := New(d, d.Caps(), c.Now)
		b.maxAge = time.Minute
		b.cache.init(8 << r.IntN(3))
		twin, f := model{}, newTraffic(r)
		for range 60 {
			c.Add(time.Duration(r.Int64N(int64(5*time.Millisecond)) >> r.IntN(12)))
			if r.IntN(40) == 0 {
				k := f.keys[r.IntN(len(f.keys))]
				_ = b.Forget(context.Background(), []limit.Key{k})
				delete(twin, k)
			}
			compare(t, d, b, twin, f, 1+r.IntN(6)*r.IntN(2))
		}
		hits += b.stats().hits
		for _, m := range []model{d.model, twin} { // a key that was only asked about is as good as none
			maps.DeleteFunc(m, func(_ limit.Key, st limit.State) bool { return reflect.DeepEqual(st, limit.State{}) })
		}
		if !reflect.DeepEqual(d.model, twin) {
			t.Fatalf("the store's state is not that without a cache:\n%v\nwant\n%v", d.model, twin)
		}
	}
	t.Logf("%d answers from the cache", hits)
	if hits < uint64(rounds)*5/2 {
		t.Error("hardly an answer came from the cache")
	}
}

// compare sends n requests and has twin decide the same.
func compare(t *testing.T, d *distant, b *Backend, twin model, f *traffic, n int) {
	t.Helper()
	reqs, out := make([]limit.Request, n), make([]limit.Verdict, n)
	f.change()
	for i := range reqs {
		reqs[i] = f.request()
	}
	began, before := d.clock.Micro(), twin.clone()
	d.asked = map[*limit.Op]bool{}
	b.Take(context.Background(), reqs, out)
	for i := range reqs {
		state, decide, same := twin, twin.decide, slices.Equal[[]limit.Outcome]
		if !d.asked[&reqs[i].Ops[0]] { // as if it had come before the others
			state, decide, same = before, before.peek, refusesNoMore
		}
		if !out[i].Admitted && state.peek(&reqs[i], began).Admitted && state.peek(&reqs[i], d.clock.Micro()).Admitted {
			t.Fatalf("request %d of %d was refused, but would have been admitted: %+v", i, n, reqs[:i+1])
		}
		if early, late := began, d.clock.Micro().Add(2*way)+1; out[i].At < early || out[i].At > late {
			t.Fatalf("decided at %d, want %d to %d", out[i].At, early, late)
		}
		want := decide(&reqs[i], out[i].At)
		if ok := same(out[i].Outcomes, want.Outcomes); !ok || out[i].Admitted != want.Admitted {
			t.Fatalf("request %d of %d at %d:\n     %+v\nwant %+v\n%+v", i, n, out[i].At, out[i], want, reqs[i])
		}
	}
}

// refusesNoMore reports whether got refuses no op that want admits, and for no
// longer.
func refusesNoMore(got, want []limit.Outcome) bool {
	for i := range got {
		switch g, w := &got[i], &want[i]; {
		case g.Admitted:
		case w.Admitted, w.Retry != limit.Never && (g.Retry == limit.Never || g.Retry > w.Retry):
			return false
		}
	}
	return true
}

// What another replica does takes effect within MaxAge.
func TestStalenessEndsWithinMaxAge(t *testing.T) {
	const age = 700 * time.Millisecond
	changes := map[string]func(other *rig, o limit.Op){
		"refund": func(other *rig, o limit.Op) { o.Cost = -1; other.take(o) },
		"forget": func(other *rig, o limit.Op) { _ = other.Forget(context.Background(), []limit.Key{o.Key}) },
		"raise": func(other *rig, o limit.Op) { // a faster refill, and a unit taken under it
			s := o.Limit.Spec()
			s.Max, s.Burst = 1000*s.Max, 0
			o.Limit = limit.MustNew(s)
			other.clock.Add(time.Minute / 500)
			other.take(o)
		},
	}
	for _, a := range limit.Algorithms() {
		for name, change := range changes {
			if name == "raise" && a != limit.TokenBucket {
				continue // its takes make no room under the old limit
			}
			t.Run(a.String()+"/"+name, func(t *testing.T) {
				here := newRig(t, age)
				other := here.replica(age)
				o := op("k", newLimit(a, 2, time.Minute), 1)
				here.exhaust(o)
				asked := here.clock.Now()
				here.want("known", false, false, o)
				change(other, o)
				here.clock.Add(age - here.clock.Now().Sub(asked) - time.Microsecond)
				here.want("just before MaxAge", false, false, o)
				here.clock.Add(time.Microsecond)
				here.want("at MaxAge", true, true, o)
			})
		}
	}
}

// A hot refused key costs the store a call for each MaxAge.
func TestHotKeyIsAskedOncePerAge(t *testing.T) {
	for _, a := range limit.Algorithms() {
		r := newRig(t, time.Second)
		o := op("hot", newLimit(a, 1, time.Hour), 1)
		r.exhaust(o)
		before := r.store.Calls.Load()
		for range 10_000 {
			r.clock.Add(time.Millisecond)
			r.take(o)
		}
		if n := r.store.Calls.Load() - before; n > 10 {
			t.Errorf("%v: %d calls in ten seconds, want at most one a second", a, n)
		}
	}
}

// Shadows and costs of zero or less always reach the store.
func TestShadowsAndRefundsReachTheStore(t *testing.T) {
	for _, a := range limit.Algorithms() {
		r := newRig(t, time.Second)
		o := op("k", newLimit(a, 2, time.Hour), 1)
		ask, giveBack := o, o
		ask.Cost, giveBack.Cost = 0, -1
		r.exhaust(o)
		for range 2 {
			r.want("shadow", true, true, shadow(o))
			r.want("two shadows", true, true, shadow(o), shadow(op("other", o.Limit, 1)))
			r.want("ask", false, true, ask)
			r.want("ask beside a refused one", false, true, ask, o)
			r.want("refused", false, false, o)
			r.want("refused, with a shadow that has no room", false, false, o, shadow(o))
		}
		r.want("giving back", true, true, giveBack)
		r.want("after it", true, true, o)
	}
}

// Ops with Each are charged when their request is refused; it is answered here
// only if they cannot be.
func TestEachIsCharged(t *testing.T) {
	for _, a := range limit.Algorithms() {
		r := newRig(t, time.Second)
		full, roomy := op("full", newLimit(a, 1, time.Hour), 1), op("roomy", newLimit(a, 3, time.Hour), 1)
		r.exhaust(full)
		for i := range 3 {
			v := r.want("charged", false, true, full, each(roomy))
			if left := v.Outcomes[1].Remaining; left != int64(2-i) {
				t.Fatalf("%v: %d left after %d charges of 3", a, left, i+1)
			}
		}
		r.want("the last unit is gone", false, true, full, each(roomy))
		r.want("nothing to charge", false, false, full, each(roomy))
		r.want("alone", false, false, each(roomy))
	}
}

// One known refusal settles a request. Its other ops get their last outcomes, or those of
// unused limits; an op that asks for more than its maximum reports 0 remaining.
func TestOneRefusalSettles(t *testing.T) {
	for _, a := range limit.Algorithms() {
		r := newRig(t, time.Second)
		l := newLimit(a, 5, time.Hour)
		full, roomy, huge := op("full", newLimit(a, 1, time.Hour), 1), op("roomy", l, 1), op("huge", l, 6)
		r.want("two are left of five", true, true, op("roomy", l, 3))
		r.exhaust(full)
		first := r.want("roomy is not known, and so as if not used", false, false, roomy, full)
		if got := first.Outcomes[0]; got != (limit.Outcome{Admitted: true, Remaining: 5}) {
			t.Errorf("%v: %+v", a, got)
		}
		r.flush()
		asked := r.want("the store is asked", false, true, roomy, full)
		r.clock.Add(500 * time.Millisecond)
		v := r.want("and remembered", false, false, roomy, full)
		want := asked.Outcomes[0]
		want.Reset -= 500 * time.Millisecond
		if got := v.Outcomes[0]; got != want || got.Remaining != 2 {
			t.Errorf("%v: %+v, want %+v", a, got, want)
		}
		if got := r.want("too much for an unused limit", false, false, huge, full).Outcomes[0]; got !=
			(limit.Outcome{Retry: limit.Never}) {
			t.Errorf("%v: %+v", a, got)
		}
		r.want("beside a shadow", false, false, shadow(roomy), full)
		r.want("the refusal is a shadow's", true, true, roomy, shadow(full))
		r.want("one key twice", false, false, full, full)
		before := r.store.Calls.Load()
		for i := range 10_000 {
			r.clock.Add(time.Millisecond)
			r.take(roomy, op("new"+strconv.Itoa(i), l, 1), full)
		}
		if n := r.store.Calls.Load() - before; n > 12 {
			t.Errorf("%v: %d calls for 10,000 refusals in ten seconds", a, n)
		}
	}
}

// The outcome of a later op includes what an earlier one would have taken, so it
// is not cached.
func TestSharedKeyTeachesNothing(t *testing.T) {
	for _, a := range limit.Algorithms() {
		r := newRig(t, time.Second)
		o := op("k", newLimit(a, 3, time.Hour), 2)
		r.want("together too much", false, true, o, o)
		r.want("alone there is room", true, true, o)
	}
}

func TestRaisedLimitIsAskedAgain(t *testing.T) {
	r := newRig(t, time.Second)
	o := op("k", newLimit(limit.FixedWindow, 2, time.Hour), 1)
	r.exhaust(o)
	again, raised := o, o
	again.Limit, raised.Limit = newLimit(limit.FixedWindow, 2, time.Hour), newLimit(limit.FixedWindow, 4, time.Hour)
	r.want("loaded again", false, false, again)
	r.want("raised", true, true, raised)
	r.want("the old one, of which the new one took", false, true, o)
	r.want("and again", false, false, o)
	r.flush()
	r.want("flushed", false, true, o)
	r.want("and again", false, false, o)
}

// A wait is counted from when the store was asked: it ends early by the time
// that took, and never late.
func TestWaitsEndEarly(t *testing.T) {
	for _, a := range limit.Algorithms() {
		r := newRig(t, time.Hour)
		o := op("k", newLimit(a, 1, 10*time.Second), 1)
		r.take(o)
		r.store.Trip = func([]limit.Request) { r.clock.Add(30 * time.Millisecond) }
		r.store.Reply = func([]limit.Request) { r.clock.Add(20 * time.Millisecond) }
		refused := r.want("refused", false, true, o)
		retry := refused.Outcomes[0].Retry
		v := r.want("at once", false, false, o)
		if v.At != refused.At.Add(50*time.Millisecond) || v.Outcomes[0].Retry != retry-50*time.Millisecond {
			t.Errorf("%v: at %d, %+v; was at %d with Retry %v", a, v.At, v.Outcomes[0], refused.At, retry)
		}
		r.clock.Add(retry - 50*time.Millisecond - 1500*time.Nanosecond)
		v = r.want("a microsecond before the end", false, false, o)
		if v.Outcomes[0].Retry != time.Microsecond {
			t.Errorf("%v: Retry %v", a, v.Outcomes[0].Retry)
		}
		r.clock.Add(1500 * time.Nanosecond)
		r.want("at the end", true, true, o)
	}
}

// A greater cost is refused as long as a lesser one, a lesser one is asked about.
func TestGreaterCostsAreRefusedToo(t *testing.T) {
	for _, a := range limit.Algorithms() {
		r := newRig(t, time.Second)
		o := op("k", newLimit(a, 12, time.Hour), 5)
		r.exhaust(o) // two are left, three are missing
		r.clock.Add(time.Millisecond)
		v := r.want(a.String(), false, false, o)
		if v.Outcomes[0].Remaining != 2 {
			t.Errorf("%v: %+v", a, v.Outcomes[0])
		}
		more := o
		more.Cost = 6
		if got := r.want(a.String()+", a greater cost", false, false, more); got.Outcomes[0].Retry != v.Outcomes[0].Retry {
			t.Errorf("%v: %+v, want the wait of %+v", a, got.Outcomes[0], v.Outcomes[0])
		}
		more.Cost = 13
		if got := r.want(a.String()+", more than ever fits", false, false, more); got.Outcomes[0].Retry != limit.Never {
			t.Errorf("%v: %+v", a, got.Outcomes[0])
		}
		more.Cost = 3
		r.want(a.String()+", a lesser cost", false, true, more)
		more.Cost = 2
		r.want(a.String()+", what is left", true, true, more)
		r.want(a.String()+", now less is left", false, false, o)
	}
}

// A refund that fails may have made room all the same.
func TestFailedRefundForgets(t *testing.T) {
	r := newRig(t, time.Second)
	o := op("k", newLimit(limit.FixedWindow, 2, time.Hour), 1)
	r.exhaust(o)
	r.store.Fail = func(*limit.Request) error { return backends.ErrUnavailable }
	refund, out := o, make([]limit.Verdict, 1)
	refund.Cost = -1
	r.Take(context.Background(), []limit.Request{{Ops: []limit.Op{refund}}}, out)
	if out[0].Err == nil {
		t.Fatal("no error")
	}
	r.store.Fail = nil
	r.want("after it, as it was applied", true, true, o)
}

// Over several partitions, a refused request may take units and give them back.
func TestUnitsTakenAndGivenBack(t *testing.T) {
	c := remote.NewClock()
	s := newStore(c.Now)
	s.Atomicity = backends.PerPartition
	r := &rig{T: t, Backend: New(s, s.Caps(), c.Now), store: s, clock: c}
	l := newLimit(limit.FixedWindow, 1, time.Hour)
	x, full := op("x", l, 1), op("full", l, 1)
	r.exhaust(full)
	r.flush()
	// While the request is under way, another one meets what it took of x.
	s.Trip = func([]limit.Request) {
		s.Trip = nil
		s.Memory.Take(context.Background(), []limit.Request{{At: c.Micro(), Ops: []limit.Op{x}}}, make([]limit.Verdict, 1))
		r.want("for a moment", false, true, x)
		_ = s.Memory.Forget(context.Background(), []limit.Key{x.Key})
	}
	r.want("refused", false, true, x, full)
	r.want("the moment is over", true, true, x)
}

// Instants that come with requests age refusals as the clock does.
func TestGivenInstantsAgeRefusals(t *testing.T) {
	c := remote.NewClock()
	s := newStore(c.Now)
	s.Precision = time.Millisecond
	b := New(s, s.Caps(), c.Now)
	o := op("k", newLimit(limit.SlidingLog, 1, time.Hour), 1)
	at := c.Micro()
	take := func(at limit.Instant, asked bool) {
		t.Helper()
		out, before := make([]limit.Verdict, 1), s.Calls.Load()
		b.Take(context.Background(), []limit.Request{{At: at, Ops: []limit.Op{o}}}, out)
		if got := s.Calls.Load() != before; got != asked || asked && out[0].At != at-at%1000 || !asked && out[0].At != at {
			t.Errorf("at %d: asked %v, want %v; decided at %d", at, got, asked, out[0].At)
		}
	}
	take(at, true)
	take(at+1000, true)
	take(at+1999, false)
	take(at+1000+999_999, false)
	take(at+1000+1_000_000, true)
	take(at+1000+1_000_000, false)
	take(at+1000+999_000, true) // before that
	take(at+1000+1_999_000, true)
}

// A verdict's instant is never behind the store's clock, and is the earliest of all ops.
func TestInstantOfAnswers(t *testing.T) {
	c := remote.NewClock()
	s := newStore(c.Now)
	s.Precision = time.Millisecond
	r := &rig{T: t, Backend: New(s, s.Caps(), c.Now), store: s, clock: c}
	l := newLimit(limit.FixedWindow, 1, time.Hour)
	x, y := op("x", l, 1), op("y", l, 1)
	c.Add(700 * time.Microsecond)
	r.exhaust(y)
	s.Reply = func([]limit.Request) { c.Add(20 * time.Millisecond) }
	s.Trip = func([]limit.Request) { c.Add(10 * time.Millisecond) }
	r.exhaust(x)
	for range 20 {
		c.Add(1234 * time.Microsecond)
		now := c.Micro() - c.Micro()%1000
		if v := r.want("x was learnt from afar", false, false, x); v.At < now+10_000 || v.At > now+12_000 {
			t.Fatalf("at %d it is said to be %d", now, v.At)
		}
		for _, ops := range [][]limit.Op{{y}, {x, y}, {y, x}} {
			if v := r.want("y", false, false, ops...); v.At < now || v.At > now+2000 {
				t.Fatalf("at %d it is said to be %d: %+v", now, v.At, v.Outcomes)
			}
		}
	}
}

// What can never succeed is not refused here but told by the store.
func TestTooManyOps(t *testing.T) {
	r := newRig(t, time.Second)
	o := op("k", newLimit(limit.FixedWindow, 1, time.Hour), 1)
	r.exhaust(o)
	for _, ops := range [][]limit.Op{slices.Repeat([]limit.Op{o}, r.store.Caps().MaxOps+1), {},
		{o, {Key: o.Key, Cost: 1}}} {
		out := make([]limit.Verdict, 1)
		r.Take(context.Background(), []limit.Request{{Ops: ops}}, out)
		if out[0].Err == nil {
			t.Errorf("%d ops: no error", len(ops))
		}
	}
}

// Each of several costs on one key is answered, whatever the algorithm.
func TestMixedCostsAreEachAnswered(t *testing.T) {
	for _, a := range limit.Algorithms() {
		r := newRig(t, time.Hour)
		s := limit.Spec{Algorithm: a, Max: 7, Window: time.Second}
		if a == limit.TokenBucket {
			s.Burst = 8 // a unit comes back in 1000000/7 µs
		}
		o := op("k", limit.MustNew(s), 1)
		r.clock.Add(time.Microsecond)
		for range o.Limit.Capacity() {
			r.clock.Add(time.Microsecond)
			r.take(o)
		}
		for i := range 100 {
			r.clock.Add(time.Millisecond / 7)
			for _, o.Cost = range []int64{1, 2, 3, 9, 5} {
				if v, asked := r.take(o); v.Admitted || asked && i > 0 {
					t.Fatalf("%v: cost %d, the %d. time: admitted %v, asked %v", a, o.Cost, i, v.Admitted, asked)
				}
			}
		}
	}
}
