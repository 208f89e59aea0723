package memory

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

func inFlight(most int64, window time.Duration) *limit.Limit {
	return limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: most, Window: window})
}

func acquire(k limit.Key, l *limit.Limit, holder string) limit.Op {
	return limit.Op{Key: k, Limit: l, Cost: 1, Holder: holder}
}

func release(k limit.Key, l *limit.Limit, holder string) limit.Op {
	return limit.Op{Key: k, Limit: l, Cost: -1, Holder: holder}
}

// takeOps sends one request.
func takeOps(b *Backend, at limit.Instant, ops ...limit.Op) limit.Verdict {
	out := make([]limit.Verdict, 1)
	b.Take(context.Background(), []limit.Request{{At: at, Ops: ops}}, out)
	return out[0]
}

func wantLeases(t *testing.T, b *Backend, what string, want int64) {
	t.Helper()
	if got := b.Stats().Leases; got != want {
		t.Errorf("%s: %d leases are counted, want %d", what, got, want)
	}
}

// TestMaxLeasesBoundsAllKeysTogether: at the bound nobody gets a lease, whatever key it is
// of, until one has gone; who has one can renew it and give it back.
func TestMaxLeasesBoundsAllKeysTogether(t *testing.T) {
	b := New(Config{MaxLeases: 10})
	l, bucket := inFlight(100, time.Minute), perSecond(limit.TokenBucket, 5)
	for i := range 10 {
		if v := takeOps(b, start, acquire(numbered(i%3), l, strconv.Itoa(i))); v.Err != nil || !v.Admitted {
			t.Fatalf("lease %d: %+v", i, v)
		}
	}
	wantLeases(t, b, "all", 10)
	tokens := limit.Op{Key: numbered(50), Limit: bucket, Cost: 1}
	for _, ops := range [][]limit.Op{
		{acquire(numbered(0), l, "x")}, {acquire(numbered(9), l, "x")}, {tokens, acquire(numbered(9), l, "x")},
	} {
		if v := takeOps(b, start, ops...); !errors.Is(v.Err, backends.ErrUnavailable) ||
			!errors.Is(v.Err, backends.ErrNotApplied) {
			t.Errorf("%+v", v)
		}
	}
	tokens.Cost = 0
	if v := takeOps(b, start, tokens); v.Err != nil || v.Outcomes[0].Remaining != 5 {
		t.Errorf("not applied, yet %+v", v)
	}
	renew := acquire(numbered(0), l, "0")
	renew.Cost = 0
	if v := takeOps(b, start+second, renew); v.Err != nil || !v.Outcomes[0].Held {
		t.Errorf("renewal: %+v", v)
	}
	if v := takeOps(b, start+second, release(numbered(0), l, "0")); v.Err != nil || !v.Outcomes[0].Held {
		t.Errorf("release: %+v", v)
	}
	wantLeases(t, b, "one given back", 9)
	if v := takeOps(b, start+second, acquire(numbered(9), l, "x")); v.Err != nil || !v.Admitted {
		t.Errorf("after a release: %+v", v)
	}
	b.Sweep(start + 120*second)
	wantLeases(t, b, "all have expired", 0)
	if v := takeOps(b, start+120*second, acquire(numbered(0), l, "y")); v.Err != nil || v.Outcomes[0].InFlight != 1 {
		t.Errorf("after all have expired: %+v", v)
	}
}

// TestLeasesAreCounted through all that a key can go through.
func TestLeasesAreCounted(t *testing.T) {
	b := New(Config{MaxKeys: 3})
	l := inFlight(100, time.Minute)
	full := limit.Op{Key: numbered(99), Limit: limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Window: time.Hour}),
		Cost: 1}
	for i := range 4 {
		takeOps(b, start, acquire(numbered(1), l, strconv.Itoa(i)))
		takeOps(b, start, acquire(numbered(1), l, strconv.Itoa(i)))
	}
	wantLeases(t, b, "acquired, and again", 4)
	if v := takeOps(b, start, acquire(numbered(1), l, "refused"), full); v.Admitted || v.Err != nil {
		t.Errorf("%+v", v)
	}
	wantLeases(t, b, "refused", 4)
	if v := takeOps(b, start, acquire(numbered(1), l, "a"), acquire(numbered(2), l, "a"),
		acquire(numbered(1), l, "b")); !v.Admitted {
		t.Errorf("%+v", v)
	}
	wantLeases(t, b, "several in a request", 7)
	takeOps(b, start, limit.Op{Key: numbered(1), Limit: l, Cost: -2})
	wantLeases(t, b, "given back without a name", 5)
	if err := b.Forget(context.Background(), []limit.Key{numbered(1)}); err != nil {
		t.Error(err)
	}
	wantLeases(t, b, "forgotten", 1)
	for i := range 5 { // key 2 goes for want of room
		takeOps(b, start+second, acquire(numbered(10+i), l, "a"))
	}
	wantLeases(t, b, "evicted", 3)
	if out := takeOps(b, start+second, release(numbered(2), l, "a")).Outcomes[0]; out.Held || out.InFlight != 0 ||
		out.Remaining != 100 {
		t.Errorf("release of a lease that was evicted: %+v", out)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	wantLeases(t, b, "closed", 0)
}

// TestEvictionTakesTheFewestLeases: at MaxKeys the key goes that has least of its limit in flight.
func TestEvictionTakesTheFewestLeases(t *testing.T) {
	b := New(Config{MaxKeys: 2})
	short, long := inFlight(5, time.Minute), inFlight(5, time.Hour)
	takeOps(b, start, acquire(numbered(0), short, "a"))
	takeOps(b, start, acquire(numbered(1), short, "a"))
	takeOps(b, start, acquire(numbered(0), long, "b")) // so 1 has fewest
	takeOps(b, start, acquire(numbered(2), short, "a"))
	for i, want := range []int64{2, 0, 1} {
		if out := takeOps(b, start, limit.Op{Key: numbered(i), Limit: short}).Outcomes[0]; out.InFlight != want {
			t.Errorf("key %d: %+v, want %d in flight", i, out, want)
		}
	}
	if s := b.Stats(); s.Evicted != 1 || s.Keys != 2 || s.Leases != 3 {
		t.Errorf("%+v", s)
	}
	// A key without leases any more makes room first, and one that was only
	// asked about takes none.
	takeOps(b, start, release(numbered(0), short, "a"))
	takeOps(b, start, release(numbered(0), short, "b"))
	takeOps(b, start, limit.Op{Key: numbered(3), Limit: short}, limit.Op{Key: numbered(4), Limit: short})
	takeOps(b, start, acquire(numbered(5), short, "a"))
	if s := b.Stats(); s.Evicted != 1 || s.Keys != 2 || s.Leases != 2 {
		t.Errorf("%+v", s)
	}
}

// TestLeaseMemoryGoes: what leases took is free again when they are over.
func TestLeaseMemoryGoes(t *testing.T) {
	b := New(Config{})
	l := inFlight(1000, time.Minute)
	before := heap()
	const keys, each = 200, 500
	for i := range keys {
		for j := range each {
			takeOps(b, start+limit.Instant(j), acquire(numbered(i), l, strconv.Itoa(j)))
		}
	}
	full := heap()
	wantLeases(t, b, "all", keys*each)
	b.Sweep(start + 10*second)
	wantLeases(t, b, "still live", keys*each)
	b.Sweep(start + 70*second)
	wantLeases(t, b, "expired", 0)
	if now := heap(); now-before > (full-before)/10 {
		t.Errorf("%d bytes of %d are left", now-before, full-before)
	}
	t.Logf("%d bytes for each lease", (full-before)/(keys*each))
	runtime.KeepAlive(b)
}

// BenchmarkLease: a lease is acquired and given back, beside others.
func BenchmarkLease(b *testing.B) {
	for _, others := range []int{0, 10, 10_000} {
		b.Run(strconv.Itoa(others), func(b *testing.B) {
			m, l, k := New(Config{}), inFlight(limit.MaxInFlight, time.Hour), numbered(1)
			for i := range others {
				takeOps(m, start, acquire(k, l, "other"+strconv.Itoa(i)))
			}
			reqs := []limit.Request{{Ops: []limit.Op{acquire(k, l, "holder")}}, {Ops: []limit.Op{release(k, l, "holder")}}}
			out := make([]limit.Verdict, 2)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				reqs[0].At, reqs[1].At = start+limit.Instant(2*i), start+limit.Instant(2*i+1)
				m.Take(context.Background(), reqs, out)
			}
		})
	}
}

// TestAnswersCountLeases: leases that have expired are not counted any more once their key is asked for, which changes
// nothing else.
func TestAnswersCountLeases(t *testing.T) {
	l := inFlight(100, time.Minute)
	for _, more := range [][]limit.Op{nil, {{Key: numbered(2), Limit: perSecond(limit.FixedWindow, 10)}}} {
		b := New(Config{})
		takeOps(b, start, acquire(numbered(1), l, "a"))
		takeOps(b, start+3600*second, append([]limit.Op{{Key: numbered(1), Limit: l}}, more...)...)
		wantLeases(t, b, "asked for", 0)
	}
}
