package prefetch

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// TestReportSpendsWhatIsHeld: a cost that does not fit takes what the store has
// left, and what is held here is gone as well.
func TestReportSpendsWhatIsHeld(t *testing.T) {
	for _, a := range limit.Algorithms() {
		if !a.Is(limit.Prefetched) {
			continue
		}
		for _, o := range []limit.Overflow{limit.Saturate, limit.Debt} {
			t.Run(a.String()+"/"+o.String(), func(t *testing.T) {
				r := newRig(t, Config{})
				l := limit.MustNew(limit.Spec{Algorithm: a, Max: 10, Window: time.Hour, Overflow: o})
				r.want("the first", true, true, op("k", l, 1, 5))
				r.holds("then", op("k", l, 1, 5), 4, 5)
				v := r.want("a report", false, true, op("k", l, 20, 5))
				want := int64(5)
				if o == limit.Debt {
					want += 10
				}
				if v.Outcomes[0].Taken != want || v.Outcomes[0].Remaining != 0 {
					t.Errorf("%+v", v)
				}
				r.holds("after it", op("k", l, 1, 5), 0, 0)
				r.want("to ask", false, true, op("k", l, 0, 5))
			})
		}
	}
}

// TestAheadIsNeverOwed: units to be taken ahead that have no room are not taken.
func TestAheadIsNeverOwed(t *testing.T) {
	for _, o := range []limit.Overflow{limit.Saturate, limit.Debt} {
		r := newRig(t, Config{})
		l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 6, Window: time.Hour, Overflow: o})
		r.want("the first", true, true, op("k", l, 1, 4))
		r.holds("then", op("k", l, 1, 4), 3, 2)
		r.want("more than is held", true, false, op("k", l, 3, 4))
		r.want("a unit with no room for more", true, true, op("k", l, 1, 4))
		r.holds("then", op("k", l, 1, 4), 0, 1)
		r.want("the last", true, true, op("k", l, 1, 4))
		v := r.want("to ask", false, true, op("k", l, 0, 4))
		if v.Outcomes[0].Reset > time.Hour {
			t.Errorf("%v: units that nobody has taken are owed: %+v", o, v)
		}
	}
}
