package fallback

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// TestReportsOfAnOutageAreCharged: what a report took in an outage, up to the
// limit, is charged to the primary, and nothing is owed there for it.
func TestReportsOfAnOutageAreCharged(t *testing.T) {
	for _, o := range []limit.Overflow{limit.Saturate, limit.Debt} {
		p := newPair(t, Config{})
		l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: time.Hour, Overflow: o})
		p.take(p.primary, key(1), l, 4)
		if out := p.take(p.l, key(1), l, 15); out.Admitted || out.Taken < 10 {
			t.Fatalf("%v: %+v", o, out)
		}
		p.reconcile()
		p.wantUsed(key(1), l, 10)
		if out := p.take(p.primary.Backend, key(1), l, 0); out.Reset > time.Hour {
			t.Errorf("%v: %+v", o, out)
		}
	}
}

// TestShareOfWhatMayBeOwed: replicas divide max_debt as they divide the limit.
func TestShareOfWhatMayBeOwed(t *testing.T) {
	for _, a := range limit.Algorithms() {
		l := share(limit.MustNew(limit.Spec{Algorithm: a, Max: 90, Window: time.Minute, Overflow: limit.Debt, MaxDebt: 600}),
			3)
		if l.Overflow() != limit.Debt || l.MaxDebt() != 200 || l.Capacity() != 30 {
			t.Errorf("%v", l)
		}
		long := share(limit.MustNew(limit.Spec{Algorithm: a, Max: 5, Window: limit.MaxWindow / 4, Overflow: limit.Debt,
			MaxDebt: 20}), 3)
		if long.Overflow() != limit.Debt || long.MaxDebt() < 1 {
			t.Errorf("%v", long)
		}
		if l := share(limit.MustNew(limit.Spec{Algorithm: a, Max: 90, Window: time.Minute, Overflow: limit.Saturate}),
			3); l.Overflow() != limit.Saturate {
			t.Errorf("%v", l)
		}
	}
}
