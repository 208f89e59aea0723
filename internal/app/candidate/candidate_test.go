package candidate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
	"github.com/headgate-rls/headgate/test/testenv"
)

func rulesOf(tb testing.TB, text string) *descriptors.Set {
	tb.Helper()
	set, problems := rulefile.Load([]rulefile.Source{{Name: "rules.yaml", Data: []byte(text)}}, rulefile.Options{})
	if set == nil {
		tb.Fatal(problems)
	}
	return set
}

func perTenant(tb testing.TB, n, busy int) *descriptors.Set {
	tb.Helper()
	return rulesOf(tb, fmt.Sprintf("domain: shop\ndescriptors:\n- {key: tenant, rate_limit: {name: n, unit: day, "+
		"requests_per_unit: %d}}\n- {key: busy, concurrency: [{threshold: %d, response: {statusCode: 503}}]}\n", n, busy))
}

func memoryConfig(tb testing.TB) ratelimit.Config {
	tb.Helper()
	store, err := stack.New(context.Background(), "memory://", stack.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = store.Close() })
	return ratelimit.Config{Backend: store.Backend, Caps: store.Caps, Local: store.Local, Now: store.Now,
		Log: slog.New(slog.DiscardHandler), Timeout: time.Second}
}

// A pair is a live service and a candidate beside it.
type pair struct {
	live *ratelimit.Service
	*Candidate
}

// newPair returns a pair whose candidate does not run yet.
func newPair(tb testing.TB, sample float64, backend func(backends.Backend) backends.Backend,
	change ...func(*ratelimit.Config)) *pair {
	tb.Helper()
	config := func() ratelimit.Config {
		c := memoryConfig(tb)
		for _, f := range change {
			f(&c)
		}
		return c
	}
	conf := config()
	if backend != nil {
		conf.Backend = backend(conf.Backend)
	}
	k, err := New(Config{Service: conf, Sample: sample})
	if err != nil {
		tb.Fatal(err)
	}
	k.Rows()
	conf = config()
	conf.Taps = []ratelimit.Tap{k}
	live, err := ratelimit.New(conf, perTenant(tb, 5, 3))
	if err != nil {
		tb.Fatal(err)
	}
	return &pair{live, k}
}

func (p *pair) run(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-done })
}

func (p *pair) ask(key, value string) *ratelimit.Response {
	req := &ratelimit.Request{Domain: "shop", InProcess: true,
		Descriptors: []ratelimit.Descriptor{{Entries: []descriptors.Entry{{Key: key, Value: value}}}}}
	resp := new(ratelimit.Response)
	p.live.Decide(context.Background(), []*ratelimit.Request{req}, []*ratelimit.Response{resp})
	return resp
}

func (p *pair) await(tb testing.TB, requests int64) Answer {
	tb.Helper()
	testenv.Eventually(tb, 10*time.Second, "have decided all", func() string {
		if n := p.Compare(time.Hour, 10).Requests; n != requests {
			return fmt.Sprintf("%d of %d requests are decided", n, requests)
		}
		return ""
	})
	return p.Compare(time.Hour, 10)
}

func mustSet(tb testing.TB, p *pair, set *descriptors.Set) {
	tb.Helper()
	if err := p.SetRules(set); err != nil {
		tb.Fatal(err)
	}
}

// The live answers stay as they are, and what differs is counted, by rule and by key.
func TestCandidateIsCompared(t *testing.T) {
	p := newPair(t, 1, nil)
	mustSet(t, p, perTenant(t, 2, 3))
	p.run(t)
	for i := range 7 {
		if refused := p.ask("tenant", "a").OverLimit; refused != (i >= 5) {
			t.Errorf("request %d: refused %v", i, refused)
		}
	}
	p.ask("tenant", "b")
	a := p.await(t, 8)
	want := counts{8, 2, 5, 3, 0}
	if a.counts != want || len(a.Rules) != 1 || a.Rules[0].Rule != "shop/tenant:n" || a.Rules[0].Change != 3 ||
		len(a.Keys) != 1 || a.Keys[0].Key != "shop|tenant=a" || a.Keys[0].NewlyRefused != 3 {
		t.Errorf("%+v", a)
	}
	for labels, n := range map[[2]string]int64{{"ok", "ok"}: 3, {"ok", "over_limit"}: 3, {"over_limit", "over_limit"}: 2} {
		if got := p.decisions.Of("shop", "shop/tenant:n", labels[0], labels[1]).Value(); got != n {
			t.Errorf("%v: %d, want %d", labels, got, n)
		}
	}
	mustSet(t, p, perTenant(t, 9, 3)) // begins anew
	if a := p.Compare(time.Hour, 10); a.Requests != 0 || a.Keys != nil {
		t.Errorf("%+v", a)
	}
	p.ask("tenant", "a")
	if a := p.await(t, 1); a.NewlyAdmitted != 1 || a.Rules[0].Change != -1 {
		t.Errorf("%+v", a)
	}
	mustSet(t, p, rulesOf(t, "domain: other\ndescriptors: [{key: a}]\n"))
	p.ask("tenant", "a")
	mustSet(t, p, new(descriptors.Set))
	p.ask("tenant", "a")
	if p.Active() || p.Compare(time.Hour, 1).Deciding || len(p.queue) != 0 {
		t.Error("no rules are on trial, and yet something is decided")
	}
}

// A request of the candidate is in flight as long as the live one.
func TestInFlight(t *testing.T) {
	p := newPair(t, 1, nil)
	mustSet(t, p, perTenant(t, 5, 1))
	p.run(t)
	first, second := p.ask("busy", "x"), p.ask("busy", "x")
	if a := p.await(t, 2); a.NewlyRefused != 1 {
		t.Errorf("%+v", a)
	}
	p.live.Leases().ApplyOwn(t.Context(), leases.Release, first.Inside.Lease)
	p.ask("busy", "x")
	if a := p.await(t, 3); a.NewlyRefused != 1 {
		t.Errorf("the first has ended: %+v", a)
	}
	p.live.Leases().ApplyOwn(t.Context(), leases.Release, second.Inside.Lease) // which the candidate refused
	p.ask("busy", "x")
	if a := p.await(t, 4); a.NewlyRefused != 2 {
		t.Errorf("the third is in flight: %+v", a)
	}
}

// A request of the candidate stays in flight while the live one's lease is renewed, and expires as it does.
func TestRenewedRequestsStayInFlight(t *testing.T) {
	var now atomic.Int64
	now.Store(int64(limit.InstantOf(time.Now())))
	p := newPair(t, 1, nil, func(c *ratelimit.Config) {
		c.Now = func() limit.Instant { return limit.Instant(now.Load()) }
	})
	mustSet(t, p, perTenant(t, 5, 1))
	p.run(t)
	lease := p.ask("busy", "x").Inside.Lease
	p.await(t, 1)
	for n := range int64(4) {
		now.Add((descriptors.DefaultLeaseTTL * 3 / 4).Microseconds())
		p.live.Leases().ApplyOwn(t.Context(), leases.Renew, lease)
		p.ask("tenant", fmt.Sprint(n)) // is decided when the lease is renewed
		p.await(t, 2+n)
	}
	p.ask("busy", "x")
	if a := p.await(t, 6); a.NewlyRefused != 1 {
		t.Errorf("the first is in flight: %+v", a)
	}
	now.Add((descriptors.DefaultLeaseTTL * 5 / 4).Microseconds())
	p.ask("busy", "x")
	if a := p.await(t, 7); a.NewlyRefused != 1 {
		t.Errorf("the first has expired: %+v", a)
	}
}

// A stuck store is one that does not answer in time.
type stuck struct {
	backends.Backend
	free chan struct{}
}

func (s *stuck) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	<-s.free
	s.Backend.Take(ctx, reqs, out)
}

// No live answer waits for a candidate that is stuck: what it cannot take is dropped and counted.
func TestLiveAnswersDoNotWait(t *testing.T) {
	s := &stuck{free: make(chan struct{})}
	p := newPair(t, 1, func(b backends.Backend) backends.Backend { s.Backend = b; return s })
	mustSet(t, p, perTenant(t, 2, 3))
	p.run(t)
	t.Cleanup(func() { close(s.free) })
	began, worst := time.Now(), time.Duration(0)
	const n = maxQueued + 3000
	for i := range n {
		at := time.Now()
		if resp := p.ask("tenant", fmt.Sprint(i)); resp.OverLimit || resp.Err != nil {
			t.Fatalf("%+v", resp)
		}
		worst = max(worst, time.Since(at))
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("%d answers took %v, the slowest %v", n, took, worst)
	}
	if d := p.dropped.Value(); d < 3000-maxBatch-1 || d > 3000 {
		t.Errorf("%d dropped", d)
	}
}

func TestSampleIsOfKeys(t *testing.T) {
	p := newPair(t, 0.25, nil)
	mustSet(t, p, perTenant(t, 2, 3))
	for range 4 {
		for i := range 200 {
			p.ask("tenant", fmt.Sprint("t", i))
		}
	}
	n := len(p.queue)
	if n%4 != 0 || n < 4*25 || n > 4*80 {
		t.Errorf("%d requests of 800 are decided", n)
	}
	p.run(t)
	if a := p.await(t, int64(n)); a.NewlyRefused != int64(n/2) {
		t.Errorf("%+v", a)
	}
}

// Counters in a store that is shared are the trial's own.
func TestOwnCounters(t *testing.T) {
	conf := memoryConfig(t)
	o := &Own{Backend: conf.Backend}
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: time.Hour})
	take := func(b backends.Backend) int64 {
		reqs := []limit.Request{{At: 1, Ops: []limit.Op{{Key: limit.Key{Group: "1:a", Limit: "f"}, Limit: l, Cost: 1}}}}
		out := make([]limit.Verdict, 1)
		b.Take(t.Context(), reqs, out)
		if out[0].Err != nil || reqs[0].Ops[0].Key.Group != "1:a" {
			t.Fatalf("%v, %+v", out[0].Err, reqs[0])
		}
		return out[0].Outcomes[0].Remaining
	}
	take(conf.Backend)
	o.Begin("one")
	if left := take(o); left != 9 {
		t.Errorf("%d are left", left)
	}
	if left := take(o); left != 8 {
		t.Errorf("%d are left", left)
	}
	o.Begin("two")
	if take(o) != 9 {
		t.Error("another trial has the same counters")
	}
	if left := take(conf.Backend); left != 8 {
		t.Errorf("%d are left for others", left)
	}
	if err := o.Forget(t.Context(), []limit.Key{{Group: "1:a", Limit: "f"}}); err != nil || take(o) != 9 {
		t.Errorf("forgotten: %v", err)
	}
}

func TestOverHTTP(t *testing.T) {
	p := newPair(t, 0.5, nil)
	get := func(query string) (int, Answer) {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/admin/candidate?"+query, nil))
		var a Answer
		_ = json.Unmarshal(w.Body.Bytes(), &a)
		return w.Code, a
	}
	if code, a := get(""); code != http.StatusOK || a.Deciding || a.Sample != 0.5 {
		t.Errorf("%d %+v", code, a)
	}
	p.Failed(fmt.Errorf("rules.yaml:3: wrong"))
	mustSet(t, p, perTenant(t, 2, 3))
	p.Failed(fmt.Errorf("rules.yaml:3: wrong"))
	if code, a := get("since=1h&top=3"); code != http.StatusOK || !a.Deciding || !strings.Contains(a.Error,
		"rules.yaml:3") {
		t.Errorf("%d %+v", code, a)
	}
	for _, bad := range []string{"since=25h", "since=x", "top=-1", "top=1000", "sinse=1h"} {
		if code, _ := get(bad); code != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, code)
		}
	}
}

// Whatever is counted has a bound.
func TestTallyIsBounded(t *testing.T) {
	tally, now := newTally(), time.Unix(1_800_000_000, 0)
	j := &job{refused: true}
	for i := range maxNames + 50 {
		tally.label(fmt.Sprint(i))
		tally.add(j, fmt.Sprint(i), now)
	}
	if tally.label("one more") != others || tally.label("7") != "7" {
		t.Error("names are not bounded")
	}
	total, rules, _ := tally.sum(now.Add(-time.Minute), now, 10)
	if len(rules) != maxRules+1 || total.RefusedOld != maxNames+50 || total.NewlyAdmitted != maxNames+50 {
		t.Errorf("%d rules, %+v", len(rules), total)
	}
	tally.add(j, "x", now.Add(2*time.Hour))
	if total, _, _ := tally.sum(now.Add(time.Hour), now.Add(2*time.Hour), 10); total.Requests != 1 {
		t.Errorf("of the last hour: %+v", total)
	}
	tally.add(j, "x", now.Add(24*time.Hour))
	if total, _, _ := tally.sum(now, now.Add(24*time.Hour), 10); total.Requests != 2 {
		t.Errorf("of the last day: %+v", total)
	}
}

// BenchmarkLive measures a live answer without a candidate, with one, and with one that is stuck.
func BenchmarkLive(b *testing.B) {
	for _, c := range []struct {
		name       string
		set, stuck bool
	}{{name: "without"}, {name: "with", set: true}, {name: "stuck", set: true, stuck: true}} {
		b.Run(c.name, func(b *testing.B) {
			s := &stuck{free: make(chan struct{})}
			if !c.stuck {
				close(s.free)
			}
			p := newPair(b, 1, func(inner backends.Backend) backends.Backend { s.Backend = inner; return s })
			if c.set {
				mustSet(b, p, perTenant(b, 1000, 3))
			}
			p.run(b)
			if c.stuck {
				b.Cleanup(func() { close(s.free) })
			}
			var worst time.Duration
			for i := 0; b.Loop(); i++ {
				at := time.Now()
				p.ask("tenant", "a")
				worst = max(worst, time.Since(at))
			}
			b.ReportMetric(float64(worst.Microseconds()), "µs-worst")
		})
	}
}

// Rules on trial reserve and settle as the live ones do.
func TestReservations(t *testing.T) {
	set := rulesOf(t, "domain: shop\ndescriptors:\n- {key: user, reserve: {amount: estimate, default: 100, max: 400, "+
		"ttl: 1h}, limits: [{algorithm: fixed_window, limit: 1000, window: 24h}]}\n")
	p := newPair(t, 1, nil)
	mustSet(t, p, set)
	if err := p.live.SetRules(set); err != nil {
		t.Fatal(err)
	}
	p.run(t)
	const rounds = 12
	refused := int64(0)
	for i := range int64(rounds) {
		req := &ratelimit.Request{Domain: "shop", InProcess: true, Estimate: &ratelimit.Estimate{Units: 300, AsSent: true},
			Descriptors: []ratelimit.Descriptor{{Entries: []descriptors.Entry{{Key: "user", Value: "a"}}}}}
		resp := new(ratelimit.Response)
		p.live.Decide(t.Context(), []*ratelimit.Request{req}, []*ratelimit.Response{resp})
		if resp.OverLimit {
			refused++
		} else {
			p.live.EndReservation(t.Context(), &resp.Inside.Lease, ratelimit.Settled, 100)
		}
		p.await(t, i+1)
	}
	// 8 requests spend 800; of the next ones none has room for 300.
	if a := p.await(t, rounds); refused != 4 || a.RefusedOld != refused || a.RefusedNew != refused ||
		a.NewlyRefused != 0 {
		t.Errorf("%d refused: %+v", refused, a)
	}
}

// Many requests in flight make the end of each no slower: ends that are late are dropped, and would be missing.
func TestEndsOfManyRequestsInFlight(t *testing.T) {
	k, err := New(Config{Service: memoryConfig(t), Sample: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close(t.Context())
	until := limit.InstantOf(time.Now().Add(time.Hour))
	for i := range maxLeases - 1 {
		k.leases[fmt.Sprint("lease-", i)] = held{until: until}
	}
	k.leases["expired"] = held{}
	start := time.Now()
	for range 5000 {
		k.end(t.Context(), &job{ended: true, holder: "another"})
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("5000 ends took %v", took)
	}
	if len(k.leases) != maxLeases-1 {
		t.Errorf("%d leases, want %d", len(k.leases), maxLeases-1)
	}
}
