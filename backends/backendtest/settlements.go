package backendtest

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// checkSettlements: the end of the oldest reservation corrects what it has charged: by the whole cost, or by what has
// come beyond the reservation. Without one it charges what has come.
func checkSettlements(e *env) {
	e.keepsLeases()
	e.open()
	now := e.start().Add(time.Second) // leases say to the millisecond when they were granted
	for _, a := range e.algorithms() {
		most := e.s.Caps.Algorithms[a].Overflow
		if most == limit.Refuse {
			continue
		}
		l := e.overflowing(e.limit(a, 500, 24*ahead), most)
		budget, lease := e.key("settles", "budget", a), e.key("settles", "lease", a)
		lives := e.inFlight(limit.MaxUnits, time.Hour)
		left := int64(500)
		for i, c := range []struct {
			reserved int64
			asOf     limit.Instant
			cost     int64
			charged  int64 // in all
		}{
			{30, limit.AsLeased, 10, 10},
			{30, limit.AsLeased, 40, 40},
			{0, limit.AsLeased, 7, 7},
			{30, limit.AsLeasedBeyond, -20, 10},
			{30, limit.AsLeasedBeyond, 0, 30},
			{30, limit.AsLeasedBeyond, 10, 40},
			{30, limit.AsLeasedBeyond, -31, 0},
			{0, limit.AsLeasedBeyond, 7, 7},
			{0, limit.AsLeasedBeyond, -7, 0},
		} {
			if c.reserved > 0 {
				e.take(limit.Request{At: now, Ops: []limit.Op{{Key: budget, Limit: l.Strict(), Cost: c.reserved},
					{Key: lease, Limit: lives, Cost: 1, Holder: limit.WithAmount("h", c.reserved)}}})
			}
			v := e.take(limit.Request{At: now, Ops: []limit.Op{{Key: lease, Limit: lives, Cost: -1, Shadow: true},
				{Key: budget, Limit: l, Cost: c.cost, AsOf: c.asOf}}})
			left -= c.charged
			if got := e.takeOne(now, budget, l, 0).Remaining; got != left || v.Outcomes[1].Taken != c.charged-c.reserved {
				e.Errorf("%v, settlement %d, %+v: %+v, %d left, want %d", l, i, c, v.Outcomes[1], got, left)
				left = got
			}
		}
		e.takeTheRest(now, l, budget, lease)
	}
}

// takeTheRest ends a reservation and has what is left taken.
func (e *env) takeTheRest(now limit.Instant, l *limit.Limit, budget, lease limit.Key) {
	e.Helper()
	lives, left := e.inFlight(limit.MaxUnits, time.Hour), e.takeOne(now, budget, l, 0).Remaining
	e.take(limit.Request{At: now, Ops: []limit.Op{{Key: budget, Limit: l.Strict(), Cost: 30},
		{Key: lease, Limit: lives, Cost: 1, Holder: limit.WithAmount("h", 30)}}})
	for i, want := range []int64{left - 30, 0} { // the second time there is nothing to end
		v := e.take(limit.Request{At: now, Ops: []limit.Op{
			{Key: lease, Limit: lives, Cost: -1, Shadow: true, Holder: limit.WithAmount("h", 30), Ending: limit.EndKnown},
			{Key: budget, Limit: e.overflowing(l, limit.Saturate), Cost: limit.MaxUnits, AsOf: now}}})
		if got := e.takeOne(now, budget, l, 0).Remaining; got != 0 || v.Outcomes[1].Taken != want {
			e.Errorf("%v, end %d: %+v, %d left; want %d taken of %d, and none left", l, i, v.Outcomes[1], got, want, left)
		}
	}
}
