package backendtest

import (
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// year is a step that no clock takes by itself.
const year = 365 * 24 * time.Hour

// checkClockSteps: whatever steps the clock takes, back or ahead or ahead and
// back again, a key that is used up gives no more at once, and is as good as
// unused soon after, though it is asked all the time. Windows are long, since
// stores end state by their own clock, too.
func checkClockSteps(e *env) {
	if e.s.Caps.PlainWindows {
		e.Skip("each window has a counter of its own; PlainWindows holds the store to that")
	}
	e.open()
	for _, window := range []time.Duration{time.Minute, time.Hour} {
		for _, steps := range [][]time.Duration{
			{-window}, {window}, {-10 * window}, {10 * window}, {-year}, {year}, {year, -year}, {-year, year}, {-window - time.Second, -10 * window, -year},
		} {
			name := fmt.Sprintf("%v by %v", window, steps)
			for _, a := range e.algorithms() {
				s := e.stepper(name)
				s.units(a, window, steps)
				s = e.stepper(name + " beside a full one")
				s.full = e.limit(limit.FixedWindow, 0, window)
				s.units(a, window, steps)
			}
			if _, ok := e.s.Caps.Algorithms[limit.Concurrency]; ok {
				e.stepper(name).leases(window, 0, steps)
				if len(steps) == 1 { // else refusals that are over, and may be dropped or not, come to life again
					e.stepper(name+", refusals remembered").leases(window, window, steps)
				}
			}
		}
	}
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

// A stepper takes from one key while the clock takes steps.
type stepper struct {
	*env
	name string
	m    *model
	now  limit.Instant
	full *limit.Limit // if given, has each request refused once the clock has taken a step
}

func (e *env) stepper(name string) *stepper {
	return &stepper{env: e, name: name, m: newModel(), now: e.start()}
}

// ask sends a request and wants what the model says.
func (s *stepper) ask(ops ...limit.Op) limit.Outcome {
	s.Helper()
	req := limit.Request{At: s.now, Ops: ops}
	want, got := s.m.take(&req, s.now), s.take(req)
	if d := differ(&got, &want); d != "" {
		s.Fatalf("%s: %s\n%s%s", s.name, d, describe(&req), s.m.past(&req))
	}
	return got.Outcomes[0]
}

func (s *stepper) move(by time.Duration) { s.now = s.up(s.now.Add(by)) }

// units checks an algorithm that counts units per time.
func (s *stepper) units(a limit.Algorithm, window time.Duration, steps []time.Duration) {
	s.Helper()
	l, back := s.limit(a, 100, window), true
	op := limit.Op{Key: s.key(s.name, "steps", a), Limit: l, Cost: 1}
	for range 4 { // of which the first are older than the last
		op.Cost = 25
		s.ask(op)
		s.move(window / 40)
	}
	ask := func(cost int64) limit.Outcome {
		op.Cost = cost
		if s.full == nil {
			return s.ask(op)
		}
		return s.ask(op, limit.Op{Key: s.key(s.name, "full", limit.FixedWindow), Limit: s.full, Cost: 1})
	}
	for _, step := range steps {
		s.move(step)
		back = back && step < 0
		if out := ask(1); back && !a.Is(limit.Refilled) && (out.Admitted || out.Remaining > 0) {
			s.Errorf("%s: %v is used up, yet after a step back: %+v", s.name, l, out)
		}
	}
	for range 30 { // three windows at most
		ask(int64(s.r.IntN(2)))
		s.move(window / 10)
	}
	op.Cost = l.Capacity() / 2
	if out := s.ask(op); !out.Admitted {
		s.Errorf("%s: %v is still used up three windows later: %+v", s.name, l, out)
	}
}

// leases checks requests in flight, which nobody gives back.
func (s *stepper) leases(window, hold time.Duration, steps []time.Duration) {
	s.Helper()
	l, err := limit.New(limit.Spec{Algorithm: limit.Concurrency, Max: min(3, s.s.Caps.Algorithms[limit.Concurrency].MaxUnits), Window: window, Hold: hold})
	if err != nil {
		s.Fatal(err)
	}
	back := true
	op := limit.Op{Key: s.key(s.name, "steps", limit.Concurrency), Limit: l, Cost: 1}
	next := func() limit.Outcome {
		op.Holder += "x"
		return s.ask(op)
	}
	for range 5 { // the last are refused
		next()
		s.move(window / 40)
	}
	for _, step := range steps {
		s.move(step)
		back = back && step < 0
		if out := next(); back && out.Admitted {
			s.Errorf("%s: %v is used up, yet after a step back: %+v", s.name, l, out)
		}
	}
	for range 12 { // two windows at most
		s.move(window / 6)
		s.ask(limit.Op{Key: op.Key, Limit: l, Cost: -int64(s.r.IntN(2))})
		s.ask(limit.Op{Key: op.Key, Limit: l, Cost: 1, Holder: "polls"})
		s.ask(limit.Op{Key: op.Key, Limit: l, Cost: -1, Holder: "polls"})
	}
	s.move(window)
	if out := next(); !out.Admitted || out.InFlight != 1 {
		s.Errorf("%s: %v: leases that nobody gave back still count: %+v", s.name, l, out)
	}
}
