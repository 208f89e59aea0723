package backendtest

import (
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// checkRetry holds outcomes to their word: waiting Retry is enough, and one
// step of time less is not.
func checkRetry(e *env) {
	e.open()
	start := e.start()
	for _, a := range e.algorithms() {
		for i := range e.s.Rounds {
			e.waitRetry(a, i, start+limit.Instant(e.r.Int64N(1e6)*e.step))
		}
	}
}

func (e *env) waitRetry(a limit.Algorithm, i int, now limit.Instant) {
	window := max(pick(e.r, 10*time.Millisecond, time.Second, 1234*time.Millisecond), 10*e.precision()).Truncate(
		e.precision())
	l := e.limit(a, pick(e.r, int64(1), 2, 3, 7, 1000), window)
	k := e.key("retry", strconv.Itoa(i), a)
	var used, wait time.Duration
	for cost := int64(1); ; { // use it up over about a window's time
		out := e.takeOne(now, k, l, cost)
		if out.Retry == limit.Never {
			e.Fatalf("%v: cost %d is said never to fit", l, cost)
		}
		if !out.Admitted {
			wait = out.Retry
			if e.r.IntN(2) == 0 || used > 2*l.Window() {
				e.afterRetry(now, k, l, cost, wait)
				return
			}
		}
		step := limit.Instant(e.r.Int64N(l.Window().Microseconds()/4 + 1))
		now = e.up(now + step)
		used += time.Duration(step) * time.Microsecond
		cost = 1 + e.r.Int64N(l.Capacity())
	}
}

func (e *env) afterRetry(now limit.Instant, k limit.Key, l *limit.Limit, cost int64, wait time.Duration) {
	if wait <= 0 {
		e.Fatalf("%v: cost %d refused with Retry %v", l, cost, wait)
	}
	enough := e.up(now.Add(wait))
	if early := enough - limit.Instant(e.step); early > now {
		if out := e.takeOne(early, k, l, cost); out.Admitted {
			e.Fatalf("%v: refused at %d with Retry %v, yet cost %d is admitted a step of time earlier", l, now, wait, cost)
		}
	}
	if out := e.takeOne(enough, k, l, cost); !out.Admitted {
		e.Fatalf("%v: refused at %d with Retry %v, and cost %d still is after it: %+v", l, now, wait, cost, out)
	}
}

// checkReset: after Reset the key is as good as unused.
func checkReset(e *env) {
	e.open()
	for _, a := range e.algorithms() {
		for i := range (e.s.Rounds + 4) / 5 {
			now := e.start() + limit.Instant(e.r.Int64N(1e6)*e.step)
			l := e.limit(a, 5, 100*time.Millisecond)
			k := e.key("reset", strconv.Itoa(i), a)
			for range 5 {
				e.takeOne(now, k, l, 1)
				now += limit.Instant(e.r.Int64N(60000/e.step+1) * e.step)
			}
			out := e.takeOne(now, k, l, 0)
			if then := e.takeOne(e.up(now.Add(out.Reset)), k, l, 5); !then.Admitted {
				e.Fatalf("%v: %+v at %d, yet after Reset %+v", l, out, now, then)
			}
		}
	}
}

// checkPrecision: instants between two steps count as the earlier one.
func checkPrecision(e *env) {
	if e.step == 1 {
		e.Skip("the precision is that of instants")
	}
	e.open()
	now := e.start()
	for _, a := range e.algorithms() {
		req := request(now+limit.Instant(e.step)-1, e.key("", "fine", a), e.limit(a, 5, time.Second), 1)
		want, got := newModel().take(&req, now), e.take(req)
		if d := differ(&got, &want); d != "" {
			e.Errorf("%v: %s", a, d)
		}
	}
}

// checkServerClock: with no instant given, the store's clock decides.
func checkServerClock(e *env) {
	if !e.s.Caps.ServerClock {
		e.Skip("the store has no clock; OverCaps holds it to that")
	}
	e.open()
	for _, a := range e.algorithms() {
		l, k := e.limit(a, 2, 24*ahead), e.key("", "clock", a)
		var last limit.Instant
		for i := range 3 {
			before := limit.InstantOf(time.Now().Add(-time.Second))
			v := e.take(request(0, k, l, 1))
			after := limit.InstantOf(time.Now().Add(time.Second))
			if v.At < before || v.At > after {
				e.Fatalf("%v: decided at %v, a second or more from now", a, v.At.Time())
			}
			if v.At < last {
				e.Fatalf("%v: decided at %d after %d", a, v.At, last)
			}
			last = v.At
			if v.Admitted != (i < 2) {
				e.Fatalf("%v: take %d of 2: admitted %v", a, i+1, v.Admitted)
			}
		}
	}
	e.mixClocks()
}

// mixClocks: one slice may hold requests with and without an instant.
func (e *env) mixClocks() {
	a := e.algorithms()[0]
	l, given := e.limit(a, 2, ahead), e.start()
	out := e.takeAll([]limit.Request{
		request(0, e.key("", "mixed1", a), l, 1),
		request(given, e.key("", "mixed2", a), l, 1),
		request(0, e.key("", "mixed3", a), l, 1),
	})
	if out[0].At >= given || out[1].At != given || out[2].At >= given {
		e.Fatalf("decided at %d, %d and %d; given was only the second, %d", out[0].At, out[1].At, out[2].At, given)
	}
}

// checkServerClockModel compares verdicts on real time with the model's at the
// instants they name. It sees what injected instants cannot: state that the
// store's own clock ends too early.
func checkServerClockModel(e *env) {
	if !e.s.Caps.ServerClock {
		e.Skip("the store has no clock")
	}
	e.open()
	m := newModel()
	var reqs []limit.Request
	for _, a := range e.algorithms() {
		for _, window := range []time.Duration{20 * time.Millisecond, 170 * time.Millisecond} {
			reqs = append(reqs, request(0, e.key("", "r"+window.String(), a), e.limit(a, 4, window), 1))
		}
	}
	for range e.times(20, 40) {
		for i := range reqs {
			reqs[i].Ops[0].Cost = int64(e.r.IntN(4))
		}
		for i, got := range e.takeAll(reqs) {
			want := m.take(&reqs[i], got.At)
			if d := differ(&got, &want); d != "" {
				e.Fatalf("%s\n%s%s", d, describe(&reqs[i]), m.past(&reqs[i]))
			}
		}
		time.Sleep(time.Duration(e.r.Int64N(int64(80 * time.Millisecond))))
	}
}

// checkServerClockWait runs on real time: a refused caller who waits Retry is
// admitted, and not long before.
func checkServerClockWait(e *env) {
	if !e.s.Caps.ServerClock {
		e.Skip("the store has no clock")
	}
	e.open()
	for _, a := range e.algorithms() {
		l, k := e.limit(a, 2, 150*time.Millisecond), e.key("", "real", a)
		for range 3 {
			v := e.take(request(0, k, l, 2))
			for tries := 0; !v.Admitted; tries++ {
				refusedAt, wait := v.At, v.Outcomes[0].Retry
				if wait <= 0 || wait > 2*l.Window() || tries == 3 {
					e.Fatalf("%v: refused with Retry %v, the %d. time", a, wait, tries+1)
				}
				time.Sleep(wait + time.Millisecond)
				if v = e.take(request(0, k, l, 2)); v.Admitted && v.At < refusedAt.Add(wait) {
					e.Fatalf("%v: refused at %d with Retry %v, yet admitted at %d", a, refusedAt, wait, v.At)
				}
			}
		}
	}
}

// checkStateGoesAway: a store does not keep what is over.
func checkStateGoesAway(e *env) {
	if e.s.Stored == nil {
		e.Skip("Suite.Stored is not given")
	}
	if !e.s.Caps.ServerClock {
		e.Skip("the store has no clock to end state by")
	}
	e.open()
	before := e.s.Stored(e.TB)
	for _, a := range e.algorithms() {
		l := e.limit(a, 2, 100*time.Millisecond)
		var reqs []limit.Request
		for i := range 50 {
			reqs = append(reqs, request(0, e.key(strconv.Itoa(i), "short", a), l, 1))
		}
		e.takeAll(reqs)
	}
	e.wantStored(before)
}

// wantStored waits until no more than before is left in the store.
func (e *env) wantStored(before int) {
	e.Helper()
	var after int
	for range 100 {
		if after = e.s.Stored(e.TB); after <= before {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	e.Fatalf("%d entries are left ten seconds after their end, %d before", after, before)
}
