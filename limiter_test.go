package headgate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	_ "github.com/headgate-rls/headgate/backends/redis"
	_ "github.com/headgate-rls/headgate/backends/sqlstore"
	"github.com/headgate-rls/headgate/metrics"
	"github.com/headgate-rls/headgate/test/testenv"
)

const testRules = `
domain: d
descriptors:
  - key: user
    limits: [{name: day, algorithm: sliding_log, limit: 3, window: 24h}]
  - key: deny
    on_backend_error: deny
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: allow
    on_backend_error: allow
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: error
    on_backend_error: error
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: tight
    lease_ttl: 3s
    concurrency: [{threshold: 1, response: {statusCode: 503}}]
  - key: alone
    concurrency: [{threshold: 1, response: {statusCode: 503}}]
  - key: five
    concurrency: [{threshold: 5, response: {statusCode: 429}}]
  - key: crowd
    release: hits
    lease_ttl: 3s
    concurrency: [{threshold: 1, response: {statusCode: 429}}]
`

func open(t *testing.T, change ...func(*Options)) *Limiter {
	t.Helper()
	opt := Options{Rules: []Rules{YAML("rules.yaml", testRules)}}
	for _, f := range change {
		f(&opt)
	}
	l, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func allowed(t *testing.T, l *Limiter, list ...Descriptor) bool {
	t.Helper()
	d, err := l.Check(t.Context(), "d", list...)
	if err != nil {
		t.Fatal(err)
	}
	return d.Allowed
}

// Of 300 calls at once as many are admitted as the limit says, and a refusal says why.
func TestCheckIsExact(t *testing.T) {
	l := open(t)
	var admitted atomic.Int64
	var running sync.WaitGroup
	for range 300 {
		running.Go(func() {
			if d, err := l.Check(t.Context(), "d", Describe("user", "alice")); err == nil && d.Allowed {
				admitted.Add(1)
			}
		})
	}
	running.Wait()
	if n := admitted.Load(); n != 3 {
		t.Errorf("%d calls were admitted, want 3", n)
	}
	d, err := l.Check(t.Context(), "d", Describe("user", "alice"))
	if err != nil || d.Allowed || d.Rule != "d/user:day" || d.Name != "day" || d.Max != 3 || d.Window != 24*time.Hour ||
		d.Remaining != 0 || d.RetryAfter <= 23*time.Hour || d.Degraded {
		t.Errorf("refusal: %+v, %v", d, err)
	}
	if !allowed(t, l, Describe("user", "bob")) || !allowed(t, l, Describe("nobody", "limits this")) {
		t.Error("others are refused")
	}
}

func TestBadCallsChargeNothing(t *testing.T) {
	l := open(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		domain string
		list   []Descriptor
		want   error
	}{
		"no domain":      {t.Context(), "", []Descriptor{Describe("user", "x")}, ErrInvalid},
		"no descriptor":  {t.Context(), "d", nil, ErrInvalid},
		"no key":         {t.Context(), "d", []Descriptor{Describe("user", "x"), Describe("", "y")}, ErrInvalid},
		"no text":        {t.Context(), "d", []Descriptor{Describe("user", "x"), Describe("\xff", "y")}, ErrInvalid},
		"needs a lease":  {t.Context(), "d", []Descriptor{Describe("user", "x"), Describe("five", "")}, ErrInvalid},
		"nobody waiting": {gone, "d", []Descriptor{Describe("user", "x")}, context.Canceled},
	} {
		if d, err := l.Check(c.ctx, c.domain, c.list...); !errors.Is(err, c.want) || d.Allowed {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if d, err := l.Peek(t.Context(), "d", Describe("user", "x")); err != nil || d.Remaining != 3 {
		t.Errorf("after calls that failed: %+v, %v", d, err)
	}
	if err := l.Refund(t.Context(), "d", Describe("five", "")); !errors.Is(err, ErrInvalid) {
		t.Errorf("refund of a lease: %v", err)
	}
}

// Clients choose values: one that is no text must not fail the call, because callers may then let
// the request pass.
func TestValuesThatAreNoText(t *testing.T) {
	l := open(t)
	d := Describe("user", "a\xff\xfe")
	for i := range 4 {
		if allowed(t, l, d) != (i < 3) {
			t.Errorf("call %d: allowed is %t", i, i >= 3)
		}
	}
	if d.Entries[0].Value != "a\xff\xfe" {
		t.Errorf("the caller's value is %q now", d.Entries[0].Value)
	}
	if err := l.Refund(t.Context(), "d", d); err != nil {
		t.Error(err)
	}
	if !allowed(t, l, Describe("user", "a\uFFFD")) {
		t.Error("the unit that was given back does not count under the value that took it")
	}
}

// TestRefundsThatDidNotHappenFail: Refund has no Decision that could say so, so a store that does not
// answer is an error, whatever the policy allows or denies. Where the policy counts in this process,
// the units are given back there.
func TestRefundsThatDidNotHappenFail(t *testing.T) {
	const rules = `
domain: d
descriptors:
- {key: allow, rate_limit: {unit: day, requests_per_unit: 3}}
- {key: deny, on_backend_error: deny, rate_limit: {unit: day, requests_per_unit: 3}}
- {key: error, on_backend_error: error, rate_limit: {unit: day, requests_per_unit: 3}}
- {key: local, on_backend_error: local, rate_limit: {unit: day, requests_per_unit: 3}}
`
	l, err := Open(t.Context(), Options{Backend: "redis://127.0.0.1:1", Rules: []Rules{YAML("rules.yaml", rules)}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, list := range [][]Descriptor{{Describe("allow")}, {Describe("deny")}, {Describe("error")},
		{Describe("local"), Describe("allow")}, {Describe("local"), Describe("deny")}} {
		if err := l.Refund(t.Context(), "d", list...); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v: %v, want %v", list, err, ErrUnavailable)
		}
	}
	if d, err := l.Check(t.Context(), "d", Describe("local")); err != nil || d.Remaining != 2 || !d.Degraded {
		t.Errorf("before the refund: %+v, %v", d, err)
	}
	if err := l.Refund(t.Context(), "d", Describe("local")); err != nil {
		t.Errorf("counted in this process: %v", err)
	}
	if d, err := l.Peek(t.Context(), "d", Describe("local")); err != nil || d.Remaining != 3 {
		t.Errorf("after the refund: %+v, %v", d, err)
	}
}

func TestOpenRefusesMistakes(t *testing.T) {
	good := []Rules{YAML("rules.yaml", testRules)}
	for want, opt := range map[string]Options{
		"no rules: set":                      {},
		"Rules[0] is empty":                  {Rules: []Rules{{}}},
		"no backend for scheme":              {Rules: good, Backend: "memcached://x"},
		`OnBackendError is "alow"`:           {Rules: good, OnBackendError: "alow"},
		`OnOverload is "local"; want one of`: {Rules: good, OnOverload: "local"},
		"Options.Timeout is negative":        {Rules: good, Timeout: -1},
		"PolicyMetrics needs Options.Pol":    {Rules: good, PolicyMetrics: []string{"user:a"}},
		`PolicyMetrics has "a*b": a * may`:   {Rules: good, Policies: "sqlite:x.db", PolicyMetrics: []string{"a*b"}},
		"Rules[0] are not Files":             {Rules: good, Follow: true},
		"no such file":                       {Rules: []Rules{Files("/none.yaml")}},
		"rules.yaml:1:1":                     {Rules: append(good, YAML("rules.yaml", "descriptors: []"))},
	} {
		if l, err := Open(t.Context(), opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
			if l != nil {
				_ = l.Close()
			}
		}
	}
}

// A lease counts for as long as it is held, much longer than its lease_ttl, and not a
// moment longer.
func TestLeaseIsRenewedUntilItIsReleased(t *testing.T) {
	for _, key := range []string{"tight", "crowd"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			lease, d, err := l.Acquire(t.Context(), "d", Describe(key, "a"))
			if err != nil || !d.Allowed || !lease.Held() {
				t.Fatalf("%+v, %v", d, err)
			}
			for end := time.Now().Add(7 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				other, d, err := l.Acquire(t.Context(), "d", Describe(key, "a"))
				if err != nil || d.Allowed || other.Held() {
					t.Fatalf("a second request passes: %+v, %v", d, err)
				}
			}
			lease.Release()
			lease.Release()
			if lease.Held() {
				t.Error("the lease is held after its release")
			}
			next, d, err := l.Acquire(t.Context(), "d", Describe(key, "a"))
			if err != nil || !d.Allowed {
				t.Errorf("after the release: %+v, %v", d, err)
			}
			next.Release()
		})
	}
}

// Reset forgets units, and no request in flight.
func TestResetKeepsRequestsInFlight(t *testing.T) {
	l := open(t)
	lease, _, err := l.Acquire(t.Context(), "d", Describe("alone", "a"), Describe("user", "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	if err := l.Reset(t.Context(), "d", Describe("alone", "a"), Describe("user", "a")); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Peek(t.Context(), "d", Describe("user", "a")); err != nil || d.Remaining != 3 {
		t.Errorf("units after the reset: %+v, %v", d, err)
	}
	if d, err := l.Peek(t.Context(), "d", Describe("alone", "a")); err != nil || d.Allowed {
		t.Errorf("requests in flight after the reset: %+v, %v", d, err)
	}
}

func TestNobodyIsInsideBeyondTheThreshold(t *testing.T) {
	l := open(t)
	var inside, most, passed atomic.Int64
	var running sync.WaitGroup
	for range 200 {
		running.Go(func() {
			for range 20 {
				lease, d, err := l.Acquire(t.Context(), "d", Describe("five", "x"))
				if err != nil {
					t.Error(err)
					return
				}
				if !d.Allowed {
					continue
				}
				n := inside.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				passed.Add(1)
				runtime.Gosched()
				inside.Add(-1)
				lease.Release()
			}
		})
	}
	running.Wait()
	if most.Load() > 5 || passed.Load() < 200/20 {
		t.Errorf("%d were inside at once, and %d passed", most.Load(), passed.Load())
	}
}

// Close leaves nothing behind, also beside calls. Calls after it fail.
func TestCloseLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, url := range []string{"memory://", "redis://127.0.0.1:1", "sqlite:" + t.TempDir() + "/limits.db"} {
		l, err := Open(context.Background(), Options{Backend: url, Rules: []Rules{YAML("rules.yaml", testRules)},
			Timeout:  50 * time.Millisecond,
			Policies: "sqlite:" + t.TempDir() + "/policies.db"})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		for i := range 40 {
			running.Go(func() {
				for {
					who := Describe("five", fmt.Sprint(i))
					lease, _, err := l.Acquire(context.Background(), "d", who)
					if errors.Is(err, ErrClosed) {
						return
					}
					if i%2 == 0 { // the others are left to Close
						lease.Release()
					}
				}
			})
		}
		for range 3 {
			running.Go(func() {
				time.Sleep(20 * time.Millisecond)
				if err := l.Close(); err != nil {
					t.Errorf("%s: %v", url, err)
				}
			})
		}
		running.Wait()
		for name, err := range map[string]error{
			"Check":    second(l.Check(context.Background(), "d", Describe("user", "x"))),
			"SetRules": l.SetRules(YAML("r", testRules)),
			"Reset":    l.Reset(context.Background(), "d", Describe("user", "x")),
			"Refund":   l.Refund(context.Background(), "d", Describe("user", "x")),
		} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines are left:\n%s", n-before, stacks[:runtime.Stack(stacks, true)])
	}
}

func second[T any](_ T, err error) error { return err }

// A store that is away, or hangs, holds nobody up: the rule's policy decides in time, and
// the store decides again when it is back. Leases of the outage end as well.
func TestPoliciesDecideWhileTheStoreIsAway(t *testing.T) {
	redis := testenv.StartRedis(t)
	l := open(t, func(o *Options) { o.Backend, o.Timeout = redis.URL(), 200*time.Millisecond })
	ask := func(key string) (Decision, time.Duration, error) {
		start := time.Now()
		d, err := l.Check(t.Context(), "d", Describe(key, "x"))
		return d, time.Since(start), err
	}
	lease := acquireByCount(t, l, "five")
	redis.Pause()
	for key, want := range map[string]string{"deny": "refused", "allow": "allowed", "error": "error"} {
		d, took, err := ask(key)
		got := "refused"
		switch {
		case errors.Is(err, ErrUnavailable):
			got = "error"
		case err != nil:
			got = err.Error()
		case d.Allowed:
			got = "allowed"
		}
		if got != want || (err == nil && !d.Degraded) || took > 20*time.Second {
			t.Errorf("%s: %s after %v (%+v)", key, got, took, d)
		}
	}
	lease.Release() // ends in the background
	redis.Resume()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		d, _, err := ask("deny")
		five, err5 := l.Peek(t.Context(), "d", Describe("five", "x"))
		if err == nil && d.Allowed && !d.Degraded && err5 == nil && five.Remaining == 5 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after the outage: %+v, %v; in flight: %+v, %v", d, err, five, err5)
		}
	}
}

// acquireByCount returns a lease that the store has granted. On a busy machine the store may
// be late at first, and a policy answers.
func acquireByCount(t *testing.T, l *Limiter, key string) Lease {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		lease, d, err := l.Acquire(t.Context(), "d", Describe(key, "x"))
		if err == nil && d.Allowed && !d.Degraded {
			return lease
		}
		lease.Release()
		if time.Now().After(end) {
			t.Fatalf("the store does not answer: %+v, %v", d, err)
		}
	}
}

// Processes that share a store share counters.
func TestLimitersShareAStore(t *testing.T) {
	redis := testenv.StartRedis(t)
	shared := func(o *Options) { o.Backend, o.Timeout = redis.URL(), 30*time.Second }
	a, b := open(t, shared), open(t, shared)
	if !allowed(t, a, Describe("user", "x")) || !allowed(t, b, Describe("user", "x")) ||
		!allowed(t, a, Describe("user", "x")) || allowed(t, b, Describe("user", "x")) {
		t.Error("three of four are not admitted")
	}
	lease, _, err := a.Acquire(t.Context(), "d", Describe("alone", "x"))
	if err != nil || !lease.Held() {
		t.Fatal(err)
	}
	if _, d, err := b.Acquire(t.Context(), "d", Describe("alone", "x")); err != nil || d.Allowed || d.Status != 503 {
		t.Errorf("the other process admits too: %+v, %v", d, err)
	}
	if err := a.Close(); err != nil { // with the lease
		t.Fatal(err)
	}
	if next, d, err := b.Acquire(t.Context(), "d", Describe("alone", "x")); err != nil || !d.Allowed {
		t.Errorf("after the other process has closed: %+v, %v", d, err)
	} else {
		next.Release()
	}
}

func TestSetRulesKeepsCountersAndRefusesMistakes(t *testing.T) {
	l := open(t)
	allowed(t, l, Describe("user", "x"))
	if err := l.SetRules(YAML("new.yaml", "domain: d\ndescriptors: [{key: user, limits: [{algorithm: nope}]}]")); err ==
		nil || !strings.Contains(err.Error(), "new.yaml:1") && !strings.Contains(err.Error(), "new.yaml:2") {
		t.Errorf("a mistake: %v", err)
	}
	if err := l.SetRules(YAML("new.yaml", "domain: d\ndescriptors: [{key: user, limits: [{name: day, algorithm: "+
		"sliding_log, limit: 2, window: 24h}]}]")); err != nil {
		t.Fatal(err)
	}
	if !allowed(t, l, Describe("user", "x")) || allowed(t, l, Describe("user", "x")) {
		t.Error("under the new rules one more is not admitted")
	}
}

// gathered returns figures by the name of the metric and the values of its labels.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	counted := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			counted[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return counted
}

// measured has the limiter's metrics in a registry of their own.
func measured(o *Options) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	o.Metrics = metrics.Prometheus(registry)
	return registry
}

// As time passes, a limiter drops counters that have ended, and counts requests in flight.
func TestLimiterWorksAsTimePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var registry *prometheus.Registry
		l := open(t, func(o *Options) { registry = measured(o) })
		if !allowed(t, l, Describe("allow", "x")) {
			t.Fatal("the first of a hundred is refused")
		}
		if n := gathered(t, registry)["headgate_memory_keys"]; n != 1 {
			t.Errorf("%v counters are kept, want 1", n)
		}
		time.Sleep(2 * time.Hour) // more makes many ticks of what runs in the background
		if n := gathered(t, registry)["headgate_memory_keys"]; n != 0 {
			t.Errorf("%v counters are kept after they have ended", n)
		}
		lease, _, err := l.Acquire(t.Context(), "d", Describe("five", "x"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for _, name := range []string{"headgate_requests_in_flight d five", "headgate_requests_in_flight_complete"} {
			if n := gathered(t, registry)[name]; n != 1 {
				t.Errorf("%s is %v, want 1", name, n)
			}
		}
		lease.Release()
	})
}

// A limiter knows what is in flight when it opens.
func TestLimiterBeginsWithWhatIsInFlight(t *testing.T) {
	t.Parallel()
	testenv.UseSQLite(t)
	backend := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	same := func(o *Options) { o.Backend, o.Timeout = backend, 30*time.Second }
	a := open(t, same)
	lease, _, err := a.Acquire(t.Context(), "d", Describe("five", "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	testenv.Eventually(t, 20*time.Second, "know of the request in flight at once", func() string {
		var registry *prometheus.Registry
		b := open(t, same, func(o *Options) { registry = measured(o) })
		n := gathered(t, registry)["headgate_requests_in_flight d five"]
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if n != 1 {
			return fmt.Sprintf("another limiter opens with %v requests in flight", n)
		}
		return ""
	})
}

// The metrics are those of the service. They go with the limiter.
func TestMetricsAreThoseOfTheService(t *testing.T) {
	registry := prometheus.NewRegistry()
	opt := Options{Rules: []Rules{YAML("rules.yaml", testRules)}, Metrics: metrics.Prometheus(registry)}
	l, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), opt); err == nil {
		t.Error("two limiters share a registry")
	}
	for range 4 {
		allowed(t, l, Describe("user", "x"))
	}
	counted := gathered(t, registry)
	for name, want := range map[string]float64{
		"headgate_decisions_total d ok user": 3, "headgate_decisions_total d over_limit user": 1,
		"headgate_request_duration_seconds ok library": 3, "headgate_rules": 8,
	} {
		if counted[name] != want {
			t.Errorf("%s is %v, want %v (of %v)", name, counted[name], want, counted)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if families, _ := registry.Gather(); len(families) > 0 {
		t.Errorf("%d metrics are left after Close", len(families))
	}
}
