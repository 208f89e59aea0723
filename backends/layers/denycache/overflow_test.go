package denycache

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

func overflowing(a limit.Algorithm, o limit.Overflow) *limit.Limit {
	return limit.MustNew(limit.Spec{Algorithm: a, Max: 10, Window: time.Hour, Overflow: o})
}

// TestSaturatedLimitRefusesReportsHere: once nothing is left, reports are refused here
// until there is something to take again; before that each one reaches the store.
func TestSaturatedLimitRefusesReportsHere(t *testing.T) {
	for _, a := range limit.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			r := newRig(t, time.Hour)
			l := overflowing(a, limit.Saturate)
			r.want("a report that fits", true, true, op("k", l, 7))
			v := r.want("one that does not", false, true, op("k", l, 5))
			if v.Outcomes[0].Taken != 3 {
				t.Fatalf("%+v", v)
			}
			again := a != limit.FixedWindow // nothing comes back before the window ends
			r.want("when something may have come back", false, again, op("k", l, 5))
			r.want("a unit", false, again, op("k", l, 1))
			v = r.want("a report that finds nothing", false, false, op("k", l, 50))
			if out := v.Outcomes[0]; out.Taken != 0 || out.Remaining != 0 || out.Retry != limit.Never {
				t.Errorf("%+v", out)
			}
			r.want("to ask", false, true, op("k", l, 0))
			wait := r.want("a unit", false, false, op("k", l, 1)).Outcomes[0].Retry
			r.clock.Add(wait)
			v = r.want("when a unit is back", false, true, op("k", l, 50))
			if v.Outcomes[0].Taken < 1 {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestOwedUnitsAlwaysReachTheStore: what may be owed always reaches the store.
func TestOwedUnitsAlwaysReachTheStore(t *testing.T) {
	for _, a := range limit.Algorithms() {
		r := newRig(t, time.Hour)
		l, taken := overflowing(a, limit.Debt), int64(0)
		for range 20 {
			v, asked := r.take(op("k", l, 3))
			if !asked {
				t.Fatalf("%v: not asked", a)
			}
			taken += v.Outcomes[0].Taken
			if v.Admitted {
				taken += 3
			}
		}
		if taken != 20 {
			t.Errorf("%v: %d taken of 10 and 10", a, taken)
		}
	}
}

// TestKnownBesideOverflow: a request that is known to be refused reaches the store
// all the same if another op of it may take something.
func TestKnownBesideOverflow(t *testing.T) {
	r := newRig(t, time.Hour)
	full, other := op("full", newLimit(limit.FixedWindow, 1, time.Hour), 1), overflowing(limit.FixedWindow, limit.Saturate)
	r.exhaust(full)
	r.want("a report that may saturate", false, true, full, op("k", other, 15))
	if v, _ := r.take(op("k", other, 0)); v.Outcomes[0].Remaining != 0 {
		t.Errorf("%+v", v)
	}
	r.want("a unit, which takes nothing if it has no room", false, false, full, op("l", other, 1))
	owes := overflowing(limit.FixedWindow, limit.Debt)
	r.want("a unit that may be owed", false, true, full, op("m", owes, 1))
}

// TestCountedRefusalsReachTheStore: where the store counts on beyond a limit, all that it
// refuses reaches it.
func TestCountedRefusalsReachTheStore(t *testing.T) {
	r := newRig(t, time.Hour)
	r.want("a refusal", false, true, op("before", overflowing(limit.FixedWindow, limit.Saturate), 11))
	r.want("repeated", false, false, op("before", overflowing(limit.FixedWindow, limit.Saturate), 11))
	r.countsOn = true
	for _, cost := range []int64{11, 11, 1, 0, 1} {
		r.want("a refusal that is counted", false, true, op("k", overflowing(limit.FixedWindow, limit.Saturate), cost))
	}
	strict := newLimit(limit.FixedWindow, 1, time.Hour)
	r.exhaust(op("strict", strict, 1))
	r.want("one that is not", false, false, op("strict", strict, 1))
}
