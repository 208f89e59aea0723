package fallback

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/backends/layers/breaker"
	"github.com/headgate-rls/headgate/limit"
)

func acquire(k limit.Key, l *limit.Limit, holder string) limit.Op {
	return limit.Op{Key: k, Limit: l, Cost: 1, Holder: holder}
}

func renew(k limit.Key, l *limit.Limit, holder string) limit.Op {
	return limit.Op{Key: k, Limit: l, Holder: holder}
}

func release(k limit.Key, l *limit.Limit, holder string) limit.Op {
	return limit.Op{Key: k, Limit: l, Cost: -1, Holder: holder}
}

func leases(most int64) *limit.Limit {
	return limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: most, Window: time.Minute, Hold: time.Second})
}

// ask sends one request.
func (p *pair) ask(b backends.Backend, ops ...limit.Op) limit.Verdict {
	p.Helper()
	out := make([]limit.Verdict, 1)
	b.Take(context.Background(), []limit.Request{{At: p.at, Ops: ops}}, out)
	return out[0]
}

// wantInFlight asks how many leases there are.
func (p *pair) wantInFlight(b backends.Backend, k limit.Key, l *limit.Limit, want int64) {
	p.Helper()
	p.at += 2e6 // beyond what is remembered of refusals
	if out := p.take(b, k, l, 0); out.InFlight != want {
		p.Errorf("%+v, want %d in flight", out, want)
	}
}

// TestLeasesAreShared: each replica grants its part of the limit, one at least.
func TestLeasesAreShared(t *testing.T) {
	for _, c := range []struct{ most, want int64 }{{10, 3}, {2, 1}, {0, 0}} {
		p, l := newPair(t, Config{Replicas: 3}), leases(c.most)
		var admitted int64
		for i := range 20 {
			if v := p.ask(p.l, acquire(key(1), l, strconv.Itoa(i))); v.Admitted {
				admitted++
			}
		}
		if admitted != c.want {
			t.Errorf("of %d by three replicas, one grants %d, want %d", c.most, admitted, c.want)
		}
	}
}

// TestLeasesAreNotCharged: what was granted here is not the primary's when that
// is back, but what was admitted beside it is.
func TestLeasesAreNotCharged(t *testing.T) {
	p, l, units := newPair(t, Config{}), leases(10), each(10, time.Hour)[0]
	charge := limit.Op{Key: key(2), Limit: units, Cost: 2}
	for i := range 3 {
		if v := p.ask(p.l, acquire(key(1), l, strconv.Itoa(i)), charge); v.Err != nil || !v.Admitted {
			t.Fatalf("%+v", v)
		}
	}
	p.wantPending(1)
	p.wantResult(Result{Keys: 1, Units: 6})
	p.wantUsed(key(2), units, 6)
	p.wantInFlight(p.primary.Backend, key(1), l, 0)
	p.wantInFlight(p.inner, key(1), l, 3)
	p.wantResult(Result{})
}

// TestLocalLeasesOutliveTheOutage: a lease that was granted here is renewed and
// released here, also when the primary is back, and expires otherwise.
func TestLocalLeasesOutliveTheOutage(t *testing.T) {
	p, l := newPair(t, Config{Replicas: 2}), leases(10)
	p.primary.Behave(remote.Down)
	for _, holder := range []string{"released", "renewed", "lost"} {
		if v := p.ask(p.l, acquire(key(1), l, holder)); v.Err != nil || !v.Admitted {
			t.Fatalf("%+v", v)
		}
	}
	p.take(p.l, key(2), remote.Hour, 5)
	p.primary.Behave(nil)
	p.reconcile()
	p.wantInFlight(p.l, key(1), l, 3)
	if v := p.ask(p.l, release(key(1), l, "released")); v.Err != nil || !v.Outcomes[0].Held {
		t.Errorf("release after the switch back: %+v", v)
	}
	if v := p.ask(p.l, release(key(1), l, "released")); v.Err != nil || v.Outcomes[0].Held {
		t.Errorf("the same again: %+v", v)
	}
	p.at += 40e6
	if v := p.ask(p.l, renew(key(1), l, "renewed")); v.Err != nil || !v.Outcomes[0].Held {
		t.Errorf("renewal after the switch back: %+v", v)
	}
	p.at += 30e6
	p.wantInFlight(p.l, key(1), l, 1)
	if v := p.ask(p.l, release(key(1), l, "lost")); v.Outcomes[0].Held {
		t.Errorf("release of one that has expired: %+v", v)
	}
	p.wantInFlight(p.primary.Backend, key(1), l, 0)
}

// TestPrimaryLeasesInAnOutage: to release what the primary has granted is an
// error as long as it is away, and it is never said here that it was done.
func TestPrimaryLeasesInAnOutage(t *testing.T) {
	p, l := newPair(t, Config{}), leases(10)
	if v := p.ask(p.primary, acquire(key(1), l, "a")); !v.Admitted {
		t.Fatalf("%+v", v)
	}
	b := breaker.New(p.primary, breaker.Config{Failures: 1, Delay: time.Hour}, time.Now)
	defer b.Close()
	p.primary.Behave(remote.Down)
	if v := p.ask(b, release(key(1), l, "a")); !errors.Is(v.Err, backends.ErrUnavailable) ||
		errors.Is(v.Err, backends.ErrNotApplied) {
		t.Errorf("release while the store fails: %+v", v)
	}
	for _, op := range []limit.Op{release(key(1), l, "a"), renew(key(1), l, "a"), acquire(key(1), l, "b")} {
		if v := p.ask(b, op); !errors.Is(v.Err, backends.ErrUnavailable) || !errors.Is(v.Err, backends.ErrNotApplied) {
			t.Errorf("an open breaker says %+v", v)
		}
	}
	takes, _ := p.primary.Calls()
	for _, op := range []limit.Op{release(key(1), l, "a"), renew(key(1), l, "a")} {
		if v := p.ask(p.l, op); v.Err != nil || v.Outcomes[0].Held {
			t.Errorf("said to be done here, where it is not known: %+v", v)
		}
	}
	p.primary.Behave(nil)
	p.wantResult(Result{})
	if n, _ := p.primary.Calls(); n != takes {
		t.Errorf("%d calls to the primary", n-takes)
	}
	p.wantInFlight(p.primary.Backend, key(1), l, 1)
	if v := p.ask(p.primary, release(key(1), l, "a")); v.Err != nil || !v.Outcomes[0].Held {
		t.Errorf("tried again when the primary is back: %+v", v)
	}
}

// TestRepeatedIsNotOwed: a request that was granted before is charged once,
// also when the repetition comes while the primary is being charged.
func TestRepeatedIsNotOwed(t *testing.T) {
	p, l, units := newPair(t, Config{}), leases(10), each(10, time.Hour)[0]
	ops := []limit.Op{{Key: key(2), Limit: units, Cost: 3}, acquire(key(1), l, "a"), acquire(key(1), l, "a")}
	p.ask(p.l, ops...)
	p.primary.Behave(func(context.Context) error {
		if v := p.ask(p.l, ops...); v.Err != nil || !v.Admitted {
			t.Errorf("%+v", v)
		}
		return nil
	})
	p.wantResult(Result{Keys: 1, Units: 3})
	p.primary.Behave(nil)
	p.wantResult(Result{})
	p.wantUsed(key(2), units, 3)
}
