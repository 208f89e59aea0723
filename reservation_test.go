package headgate

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const budgetRules = `
domain: d
descriptors:
  - key: user
    reserve: {amount: estimate, default: 100, on_lost: free, on_5xx: charge}
    concurrency: [{threshold: 3, response: {statusCode: 503}}]
    limits: [{name: tokens, algorithm: fixed_window, limit: 1000, window: 24h}]
`

func TestReserve(t *testing.T) {
	l := open(t, func(o *Options) { o.Rules = []Rules{YAML("rules.yaml", budgetRules)} })
	reserve := func(amount uint64) Reservation {
		t.Helper()
		r, d, err := l.Reserve(t.Context(), "d", amount, Describe("user", "a"))
		if err != nil || d.Allowed != r.Held() {
			t.Fatalf("%+v, %v, held %v", d, err, r.Held())
		}
		return r
	}
	used := func(want int64) {
		t.Helper()
		if got := counted(t, l); got != want {
			t.Errorf("%d units are charged, want %d", got, want)
		}
	}
	a, b := reserve(300), reserve(0)
	used(400)
	a.Settle(120)
	used(220)
	a.Settle(1)
	a.Cancel()
	used(220)
	b.Settle(150) // more than it has reserved
	used(270)
	c, d, e := reserve(50), reserve(60), reserve(70)
	if r := reserve(1); r.Held() {
		t.Error("a fourth request is in flight, and three may be")
	}
	used(450)
	c.Cancel()
	d.Release(false)
	e.Release(true)
	used(340)
	if r := reserve(700); r.Held() {
		t.Error("700 of 660 are reserved")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b.Settle(1)
	Reservation{}.Settle(1)
	if _, _, err := l.Reserve(context.Background(), "d", 1, Describe("user", "a")); err == nil {
		t.Error("a closed limiter reserves")
	}
}

// TestCloseEndsReservations: others that use the store need not wait until they are lost.
func TestCloseEndsReservations(t *testing.T) {
	testenv.UseSQLite(t)
	for _, onLost := range []string{"free", "charge"} {
		store := func(o *Options) {
			o.Rules = []Rules{YAML("rules.yaml", strings.Replace(budgetRules, "on_lost: free", "on_lost: "+onLost, 1))}
			o.Backend = "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
		}
		var url string
		closing := open(t, store, func(o *Options) { url = o.Backend })
		other := open(t, store, func(o *Options) { o.Backend = url })
		for range 3 {
			if r, _, err := closing.Reserve(t.Context(), "d", 300, Describe("user", "a")); err != nil || !r.Held() {
				t.Fatal(err)
			}
		}
		if err := closing.Close(); err != nil {
			t.Fatal(err)
		}
		want := map[string]int64{"free": 0, "charge": 900}[onLost]
		r, d, err := other.Reserve(t.Context(), "d", 100, Describe("user", "a"))
		if n := counted(t, other); err != nil || !r.Held() || n != want+100 {
			t.Errorf("%s: %d units are charged, want %d (%+v, %v)", onLost, n, want+100, d, err)
		}
	}
}

// counted returns how many of 1000 units user a has used.
func counted(t *testing.T, l *Limiter) int64 {
	t.Helper()
	usages, err := l.service.Usage(t.Context(), []string{"d"}, [][]Entry{Describe("user", "a").Entries})
	if err != nil {
		t.Fatal(err)
	}
	return 1000 - usages[0].Limits[0].Remaining
}

// TestAcquireReservesNothing: it has no way to say what a request has cost.
func TestAcquireReservesNothing(t *testing.T) {
	l := open(t, func(o *Options) { o.Rules = []Rules{YAML("rules.yaml", budgetRules)} })
	lease, _, err := l.Acquire(t.Context(), "d", Describe("user", "a"))
	if err != nil || !lease.Held() || counted(t, l) != 1 {
		t.Errorf("%v: %d units are charged", err, counted(t, l))
	}
}

// TestReservationsAreRenewed: one outlives the time after which it would be lost.
func TestReservationsAreRenewed(t *testing.T) {
	l := open(t, func(o *Options) {
		o.Rules = []Rules{YAML("rules.yaml", strings.Replace(budgetRules, "default: 100,", "default: 100, ttl: 1s,", 1))}
	})
	r, _, err := l.Reserve(t.Context(), "d", 0, Describe("user", "a"))
	if err != nil || !r.Held() {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond)
	if err := l.service.Leases().Join(t.Context()); err != nil { // which ends those that are lost
		t.Fatal(err)
	}
	if n := counted(t, l); n != 100 {
		t.Fatalf("%d units are charged, want 100: the reservation was lost", n)
	}
	r.Settle(40)
	if n := counted(t, l); n != 40 {
		t.Errorf("%d units are charged, want 40", n)
	}
}
