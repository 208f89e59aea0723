package limit

import (
	"fmt"
	"testing"
	"time"
)

// clockSteps are steps of a clock, as seen from a limit.
func clockSteps(l *Limit) []Instant {
	w := micro(l.Window())
	return []Instant{-w, w, -10 * w, 10 * w, -micro(year), micro(year), -micro(30 * time.Second), -micro(time.Hour), -1, 1}
}

// settled returns how long after the first op that follows a step of the clock
// the limit must be as good as unused, if nobody takes any.
func settled(l *Limit) Instant {
	life := 2 * micro(l.Window())
	if l.Algorithm() == TokenBucket {
		life = Instant(ceilDiv(l.full, l.den))
	}
	if l.MaxDebt() > 0 {
		life += 2 * Instant(ceilDiv(l.MaxDebt(), l.Capacity())) * max(life, micro(l.Window()))
	}
	return max(micro(l.Window()), micro(MinAhead)) + life
}

// TestClockStepsStarveNobody: whatever the clock does, a key is soon as good as
// unused again, also if it was asked all the time.
func TestClockStepsStarveNobody(t *testing.T) {
	for _, l := range lawLimits(t) {
		if l.Capacity() == 0 {
			continue
		}
		for _, step := range clockSteps(l) {
			for _, often := range []bool{false, true} {
				now := MaxInstant / 2
				s, _ := Step(State{}, &Op{Limit: l, Cost: l.Capacity()}, now)
				if now += step; now < 0 {
					continue
				}
				end := now + settled(l)
				ask := int64(1)
				if l.MaxDebt() > 0 { // a refused cost is owed
					s, _ = Step(s, &Op{Limit: l, Cost: 2 * l.MaxDebt()}, now)
					ask = 0
				}
				for range 100 {
					if _, out := try(s, l, 1, now); !out.Admitted { // a refusal must not keep the state where it is
						s, _ = Step(s, &Op{Limit: l, Cost: ask}, now)
					}
					now += settled(l) / 100
					if !often {
						break
					}
				}
				if !asUnused(&walk{l: l}, s, end) {
					t.Errorf("%v, step %v, often %v: not as good as unused after %v: %+v", l, micros(int64(step)), often,
						micros(int64(settled(l))), s)
				}
			}
		}
	}
}

// TestClockStepsBackGiveNothing: however often the clock steps back, a key that
// is used up gives no more until time has passed.
func TestClockStepsBackGiveNothing(t *testing.T) {
	for _, l := range lawLimits(t) {
		now := MaxInstant / 2
		s, _ := Step(State{}, &Op{Limit: l, Cost: l.Capacity()}, now)
		for range 3 {
			for _, step := range clockSteps(l) {
				if step > 0 || now+step < 0 {
					continue
				}
				var out Outcome
				if s, out = Step(s, &Op{Limit: l, Cost: 1}, now+step); out.Admitted || out.Remaining > 0 {
					t.Fatalf("%v, step %v: %+v", l, micros(int64(step)), out)
				}
				now += step
			}
		}
	}
}

// TestClockStepKeepsTheRate: of 100 in a second nearly all are admitted after
// the clock has stepped back, and never more than an unused key admits.
func TestClockStepKeepsTheRate(t *testing.T) {
	for _, a := range Algorithms() {
		for _, step := range []time.Duration{30 * time.Second, time.Hour, year} {
			l := MustNew(Spec{Algorithm: a, Max: 100, Window: time.Second})
			var s State
			now := MaxInstant / 2
			run := func() (admitted int) {
				for range 3000 {
					var out Outcome
					now += 10_000
					if s, out = Step(s, &Op{Limit: l, Cost: 1}, now); out.Admitted {
						admitted++
					}
				}
				return admitted
			}
			run()
			now -= micro(step)
			if n := run(); n < 2700 || n > 3100 {
				t.Errorf("%v, step %v: %d of 3000 admitted", l, step, n)
			}
		}
	}
}

// TestClockStepEndsLostLeases: leases that nobody gives back expire a window
// after the clock has stepped back, however far, if somebody wants their places,
// alone or together with other limits.
func TestClockStepEndsLostLeases(t *testing.T) {
	const cap = 5
	other := MustNew(Spec{Algorithm: FixedWindow, Max: MaxUnits, Window: time.Hour})
	for _, window := range []time.Duration{50 * time.Millisecond, time.Second, time.Minute} {
		for _, hold := range []time.Duration{0, window} {
			l := MustNew(Spec{Algorithm: Concurrency, Max: cap, Window: window, Hold: hold})
			for _, step := range clockSteps(l) {
				for _, others := range []int{0, 1} {
					t.Run(fmt.Sprint(window, hold, step, others), func(t *testing.T) {
						now := MaxInstant / 2
						states := make([]State, 1+others)
						ask := func(holder string) Verdict {
							req := Request{Ops: []Op{{Key: Key{Limit: "c"}, Limit: l, Cost: 1, Holder: holder},
								{Key: Key{Limit: "o"}, Limit: other, Cost: 1}}}
							req.Ops = req.Ops[:1+others]
							var v Verdict
							Decide(states, &req, now, &v, nil)
							return v
						}
						for i := range cap {
							ask(fmt.Sprint("lost", i))
						}
						now += step
						refused := ask("new")
						if step <= 0 && refused.Admitted {
							t.Errorf("granted at once: %+v", refused)
						}
						if most := 2*window + MinAhead; refused.Outcomes[0].Retry > most {
							t.Errorf("has to wait %v", refused.Outcomes[0].Retry)
						}
						now = now.Add(refused.Outcomes[0].Retry)
						if v := ask("later"); !v.Admitted {
							t.Errorf("refused after %v: %+v", refused.Outcomes[0].Retry, v)
						}
					})
				}
			}
		}
	}
}

// TestClockStepMovesManyLeases: what one op moves is bounded, and the next go on.
func TestClockStepMovesManyLeases(t *testing.T) {
	const n = 3*maxMoved + 1
	l := MustNew(Spec{Algorithm: Concurrency, Max: n, Window: time.Minute})
	now, s := MaxInstant/2, State{}
	for i := range n {
		s, _ = Step(s, &Op{Limit: l, Cost: 1, Holder: fmt.Sprint(i)}, now)
	}
	now -= micro(time.Hour)
	for i := range 5 {
		var out Outcome
		s, out = Step(s, &Op{Limit: l, Cost: 1, Holder: "new"}, now)
		if far := out.Reset > 2*time.Minute; far != (i < 3) {
			t.Errorf("op %d: reset %v", i, out.Reset)
		}
	}
}

// TestClockStepKeepsRefusals: refusals that are remembered when the clock steps
// back still pair what is given back without a name, and are forgotten in time.
func TestClockStepKeepsRefusals(t *testing.T) {
	l := MustNew(Spec{Algorithm: Concurrency, Max: 1, Window: time.Minute, Hold: time.Minute})
	now, s := MaxInstant/2, State{}
	var out Outcome
	s, _ = Step(s, &Op{Limit: l, Cost: 1, Holder: "a"}, now)
	for range 3 {
		s, out = Step(s, &Op{Limit: l, Cost: 1, Holder: "b"}, now)
	}
	now -= micro(time.Hour)
	if out.InFlight != 4 {
		t.Fatalf("%+v", out)
	}
	if s, out = Step(s, &Op{Limit: l, Cost: 1, Holder: "c"}, now); out.Admitted || out.InFlight != 5 {
		t.Errorf("with the lease, three refusals and one more: %+v", out)
	}
	if s, out = Step(s, &Op{Limit: l, Cost: -1}, now); out.InFlight != 1 {
		t.Errorf("giving one back ended the lease: %+v", out)
	}
	now += micro(2 * time.Minute)
	if s, out = Step(s, &Op{Limit: l}, now); out.InFlight != 0 {
		t.Errorf("two minutes later: %+v", out)
	}
	if ends := l.Ends(s); ends > now.Add(time.Minute) {
		t.Errorf("the state ends in %v", ends.Time().Sub(now.Time()))
	}
}
