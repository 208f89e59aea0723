package backendtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// year is a step that no clock takes by itself.
const year = 365 * 24 * time.Hour

// checkClockSteps: whatever steps the clock takes, back or ahead or ahead and
// back again, a key that is used up gives no more at once, and is as good as
// unused soon after, though it is asked all the time. Windows are long, since
// stores end state by their own clock, too.
//
// Many keys live through this, each by a script. Of a store with manyRounds
// each request is a slice of its own. Others, where a trip is slow, get the next
// requests of all scripts as one slice.
func checkClockSteps(e *env) {
	if e.s.Caps.PlainWindows {
		e.Skip("each window has a counter of its own; PlainWindows holds the store to that")
	}
	e.open()
	var all []*script
	for i, window := range []time.Duration{time.Minute, time.Hour} {
		for j, steps := range [][]time.Duration{
			{-window}, {window}, {-10 * window}, {10 * window}, {-year}, {year}, {year, -year}, {-year, year},
			{-window - time.Second, -10 * window, -year},
		} {
			if e.s.Rounds < fewRounds && (i+j)%2 == 0 {
				continue // the other window has these
			}
			all = append(all, e.clockScripts(window, steps)...)
		}
	}
	if e.s.Rounds < manyRounds {
		e.playTogether(all)
		return
	}
	for _, s := range all {
		for i := range s.asks {
			s.judge(i, e.take(s.asks[i].req))
		}
	}
}

// together is how many requests of scripts are one slice at most.
const together = 128

// playTogether sends the first requests of all scripts, then the second ones, and so on.
func (e *env) playTogether(all []*script) {
	for i := 0; len(all) > 0; i++ {
		all = slices.DeleteFunc(all, func(s *script) bool { return len(s.asks) == i })
		for some := range slices.Chunk(all, together) {
			reqs := make([]limit.Request, len(some))
			for j, s := range some {
				reqs[j] = s.asks[i].req
			}
			for j, got := range e.takeAll(reqs) {
				some[j].judge(i, got)
			}
		}
	}
}

// clockScripts are those of all algorithms for one sequence of steps.
func (e *env) clockScripts(window time.Duration, steps []time.Duration) (all []*script) {
	name := fmt.Sprintf("%v by %v", window, steps)
	script := func(name string) *script {
		s := &script{env: e, name: name, m: newModel(), now: e.start()}
		all = append(all, s)
		return s
	}
	for _, a := range e.algorithms() {
		script(name).units(a, window, steps)
		s := script(name + " beside a full one")
		s.full = e.limit(limit.FixedWindow, 0, window)
		s.units(a, window, steps)
	}
	if _, ok := e.s.Caps.Algorithms[limit.Concurrency]; ok {
		script(name).leases(window, 0, steps)
		if len(steps) == 1 { // else refusals that are over, and may be dropped or not, come to life again
			script(name+", refusals remembered").leases(window, window, steps)
		}
	}
	return all
}

// checkPlainWindows: an op counts in the window of its own instant, whatever came before;
// a limit that saturates counts on beyond itself; and a changed limit finds the same count.
func checkPlainWindows(e *env) {
	if !e.s.Caps.PlainWindows {
		e.Skip("windows of a key are one state; ClockSteps and Model hold the store to that")
	}
	e.open()
	for _, window := range e.s.Caps.Windows {
		l, k := e.limit(limit.FixedWindow, 3, window), e.key("plain", window.String(), limit.FixedWindow)
		now := e.start()
		counts := map[limit.Instant]int64{}
		for range 60 {
			at := now.Add(time.Duration(e.r.IntN(5)-2) * window)
			start := at - at%limit.Instant(window.Microseconds())
			out := e.takeOne(at, k, l, 1)
			if out.Admitted != (counts[start] < 3) {
				e.Fatalf("%v in the window from %d, which has %d: %+v", l, start, counts[start], out)
			}
			if out.Admitted {
				counts[start]++
			}
		}
	}
	now, k := e.start(), e.key("plain", "beyond", limit.FixedWindow)
	l := e.overflowing(e.limit(limit.FixedWindow, 10, time.Hour), limit.Saturate)
	wider := e.overflowing(e.limit(limit.FixedWindow, 30, time.Hour), limit.Saturate)
	for i, step := range []struct {
		limit                  *limit.Limit
		cost, remaining, taken int64
		admitted               bool
	}{
		{l, 7, 3, 0, true},
		{l, 8, 0, 3, false}, // 15
		{wider, 0, 15, 0, true},
		{l, 3, 0, 0, false}, // 18
		{l, -7, 0, 0, true}, // 11
		{l, 1, 0, 0, false}, // 12
		{l, -5, 3, 0, true}, // 7
		{l.Strict(), 4, 3, 0, false},
		{l.Strict(), -9, 10, 0, true},
	} {
		out := e.takeOne(now, k, step.limit, step.cost)
		if out.Admitted != step.admitted || out.Remaining != step.remaining || out.Taken != step.taken {
			e.Fatalf("step %d, cost %d of %v: %+v", i+1, step.cost, step.limit, out)
		}
	}
}

// A script is what is asked of one key while the clock takes steps.
type script struct {
	*env
	name string
	m    *model
	now  limit.Instant
	full *limit.Limit // if given, has each request refused once the clock has taken a step
	asks []ask
}

// An ask is a request, and what must hold for its first outcome beside what the model says.
type ask struct {
	req  limit.Request
	want func(out limit.Outcome) (ok bool)
	what string // is wrong if want does not hold
}

// ask adds a request. want may be nil.
func (s *script) ask(want func(limit.Outcome) bool, what string, ops ...limit.Op) {
	s.asks = append(s.asks, ask{limit.Request{At: s.now, Ops: ops}, want, what})
}

// judge wants the verdict of asks[i] to be what the model says, and what the ask wants.
func (s *script) judge(i int, got limit.Verdict) {
	s.Helper()
	a := &s.asks[i]
	want := s.m.take(&a.req, a.req.At)
	if d := differ(&got, &want); d != "" {
		s.Fatalf("%s: %s\n%s%s", s.name, d, describe(&a.req), s.m.past(&a.req))
	}
	if a.want != nil && !a.want(got.Outcomes[0]) {
		s.Errorf("%s: %v %s: %+v", s.name, a.req.Ops[0].Limit, a.what, got.Outcomes[0])
	}
}

func (s *script) move(by time.Duration) { s.now = s.up(s.now.Add(by)) }

// units is for an algorithm that counts units per time.
func (s *script) units(a limit.Algorithm, window time.Duration, steps []time.Duration) {
	l, back := s.limit(a, 100, window), true
	op := limit.Op{Key: s.key(s.name, "steps", a), Limit: l, Cost: 1}
	for range 4 { // of which the first are older than the last
		op.Cost = 25
		s.ask(nil, "", op)
		s.move(window / 40)
	}
	next := func(cost int64, want func(limit.Outcome) bool, what string) {
		op.Cost = cost
		if s.full == nil {
			s.ask(want, what, op)
			return
		}
		s.ask(want, what, op, limit.Op{Key: s.key(s.name, "full", limit.FixedWindow), Limit: s.full, Cost: 1})
	}
	for _, step := range steps {
		s.move(step)
		back = back && step < 0
		used := back && !a.Is(limit.Refilled)
		next(1, func(out limit.Outcome) bool { return !used || !out.Admitted && out.Remaining <= 0 },
			"is used up, yet after a step back")
	}
	for range 30 { // three windows at most
		next(int64(s.r.IntN(2)), nil, "")
		s.move(window / 10)
	}
	op.Cost = l.Capacity() / 2
	s.ask(func(out limit.Outcome) bool { return out.Admitted }, "is still used up three windows later", op)
}

// leases is for requests in flight, which nobody gives back.
func (s *script) leases(window, hold time.Duration, steps []time.Duration) {
	s.Helper()
	l, err := limit.New(limit.Spec{Algorithm: limit.Concurrency,
		Max: min(3, s.s.Caps.Algorithms[limit.Concurrency].MaxUnits), Window: window, Hold: hold})
	if err != nil {
		s.Fatal(err)
	}
	back := true
	op := limit.Op{Key: s.key(s.name, "steps", limit.Concurrency), Limit: l, Cost: 1}
	next := func(want func(limit.Outcome) bool, what string) {
		op.Holder += "x"
		s.ask(want, what, op)
	}
	for range 5 { // the last are refused
		next(nil, "")
		s.move(window / 40)
	}
	for _, step := range steps {
		s.move(step)
		back = back && step < 0
		used := back
		next(func(out limit.Outcome) bool { return !used || !out.Admitted }, "is used up, yet after a step back")
	}
	for range 12 { // two windows at most
		s.move(window / 6)
		s.ask(nil, "", limit.Op{Key: op.Key, Limit: l, Cost: -int64(s.r.IntN(2))})
		s.ask(nil, "", limit.Op{Key: op.Key, Limit: l, Cost: 1, Holder: "polls"})
		s.ask(nil, "", limit.Op{Key: op.Key, Limit: l, Cost: -1, Holder: "polls"})
	}
	s.move(window)
	next(func(out limit.Outcome) bool { return out.Admitted && out.InFlight == 1 },
		"still counts leases that nobody gave back")
}
