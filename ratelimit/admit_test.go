package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/test/random"
)

const admitRules = `
domain: d
descriptors:
  - {key: window, rate_limit: {unit: second, requests_per_unit: 9, name: nine}}
  - {key: bucket, metadata: {a: b}, limits: [{algorithm: token_bucket, rate: 8/s, burst: 12}]}
  - {key: sliding, limits: [{algorithm: sliding_window, limit: 7, window: 1s}]}
  - {key: log, limits: [{algorithm: sliding_log, limit: 6, window: 1s}]}
  - key: two
    limits:
      - {algorithm: fixed_window, limit: 8, window: 1s}
      - {name: b, algorithm: token_bucket, rate: 10/s, burst: 9}
  - {key: shadow, limits: [{algorithm: fixed_window, limit: 3, window: 1s, shadow: true}]}
  - {key: debt, overflow: debt, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: detailed, detailed_metric: true, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: named, value: v1, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: pattern, value: "v*", rate_limit: {unit: second, requests_per_unit: 8}}
  - {key: "any*", rate_limit: {unit: second, requests_per_unit: 8}}
  - {key: outer, descriptors: [{key: inner, rate_limit: {unit: second, requests_per_unit: 6}}]}
  - {key: raw, limits: [{algorithm: sliding_log, limit: 8, window: 1s, counter: value}]}
  - {key: few, max_keys: 2, rate_limit: {unit: second, requests_per_unit: 8}}
  - {key: quota, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 4}}
  - {key: flight, concurrency: [{threshold: 2, response: {statusCode: 429}}]}
  - {key: budget, reserve: {amount: 2}, rate_limit: {unit: second, requests_per_unit: 9}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: exempt}
  - {key: zero, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: deny, on_backend_error: deny, rate_limit: {unit: second, requests_per_unit: 20}}
  - {key: error, on_backend_error: error, rate_limit: {unit: second, requests_per_unit: 20}}
  - {key: local, on_backend_error: local, rate_limit: {unit: second, requests_per_unit: 20}}
`

// A faulty store keeps counters in memory, and returns errors on demand.
type faulty struct {
	*memory.Backend
	fail string
}

func (f *faulty) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	switch f.fail {
	case "error":
		backends.Fail(out, errors.Join(backends.ErrUnavailable, backends.ErrNotApplied))
	case "panic":
		panic("in the store")
	default:
		f.Backend.Take(ctx, reqs, out)
	}
}

// An answerer is a service that answers by Decide, or by Admit and Finish.
type answerer struct {
	*Service
	store    *faulty
	metrics  *Metrics
	admits   bool
	admitted int
}

func newAnswerer(t *testing.T, now func() limit.Instant, admits bool) *answerer {
	t.Helper()
	a := &answerer{store: &faulty{Backend: memory.New(memory.Config{})}, metrics: NewMetrics(), admits: admits}
	var err error
	quiet := slog.New(slog.DiscardHandler)
	a.Service, err = New(Config{Backend: a.store, Caps: memory.Caps(), Local: memory.New(memory.Config{}), Now: now,
		Log: quiet, Panics: &background.Reporter{Log: quiet}, Metrics: a.metrics}, mustLoad(t, admitRules))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask returns what the answer to one request says.
func (a *answerer) ask(domain string, d Descriptor, more ...Descriptor) string {
	req := &Request{Domain: domain, Descriptors: append([]Descriptor{d}, more...), InProcess: true, NoLease: true}
	resp, begun := new(Response), new(Begun)
	if a.admits && len(more) == 0 && !d.HasHits && !d.Refund {
		var in Admission
		if a.Admit(context.Background(), begun, domain, d.Entries, &in) {
			a.admitted++
			return fmt.Sprint("ok ", in.Rule, in.Name, in.Limit, in.Remaining, in.Reset)
		}
	}
	if a.admits {
		a.Finish(context.Background(), begun, req, resp)
	} else {
		a.Decide(context.Background(), []*Request{req}, []*Response{resp})
	}
	if in := &resp.Inside; resp.Err == nil && !resp.OverLimit && in.Limit != nil && !resp.Degraded {
		return fmt.Sprint("ok ", in.Rule, in.Name, in.Limit, in.Remaining, in.Reset)
	}
	in := resp.Inside
	return fmt.Sprint(summary(resp), resp.Degraded, resp.Uncounted, resp.Body, resp.Headers, in.Rule, in.Name, in.Limit,
		in.Remaining, in.Reset, in.Wait, in.Key)
}

// keys are those with state.
func (a *answerer) keys(t *testing.T, now limit.Instant) (list []string) {
	t.Helper()
	a.store.Sweep(now)
	keys, _, err := a.store.List(context.Background(), "", 1e6)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		list = append(list, k.Group+" "+k.Limit)
	}
	slices.Sort(list)
	return list
}

// counted is all that the service has counted.
func (a *answerer) counted(now limit.Instant) (list []string) {
	for _, r := range append(a.metrics.Rows(), a.Coverage().Rows()...) {
		if r.Each == nil || strings.HasSuffix(r.Name, "_seconds") {
			continue
		}
		r.Each(func(labels []string, v float64, _ *metrics.Counts) {
			list = append(list, fmt.Sprint(r.Name, labels, v))
		})
	}
	for _, s := range a.Coverage().Shapes() {
		list = append(list, fmt.Sprint(s.Domain, s.Keys, s.Example, s.Matched(), s.Missed.Value()))
	}
	slices.Sort(list)
	return list
}

// A service with one of these does not use Admit, which leaves out what they need: else shadow mode, for one, would
// have no effect.
func TestAdmitIsForServicesWithoutMore(t *testing.T) {
	plain := Config{Caps: memory.Caps()}
	if !admits(&plain) {
		t.Error("a plain service decides no requests by themselves")
	}
	for name, set := range map[string]func(*Config){
		"a store elsewhere":          func(c *Config) { c.Caps.Local = false },
		"a store with a clock":       func(c *Config) { c.Caps.ServerClock = true },
		"windows of the wall clock":  func(c *Config) { c.Caps.PlainWindows = true },
		"answers that nobody serves": func(c *Config) { c.Dry = true },
		"metadata":                   func(c *Config) { c.Metadata = true },
		"shadow mode":                func(c *Config) { c.ShadowMode = true },
		"quota mode":                 func(c *Config) { c.QuotaMode = true },
		"headers":                    func(c *Config) { c.Headers.RetryAfter = "Retry-After" },
		"policies":                   func(c *Config) { c.Policies = new(policies.Set) },
		"a tracer":                   func(c *Config) { c.Tracer = struct{ Tracer }{} },
		"a tap":                      func(c *Config) { c.Taps = make([]Tap, 1) },
		"a sink":                     func(c *Config) { c.Sinks = make([]Sink, 1) },
	} {
		conf := plain
		set(&conf)
		if admits(&conf) {
			t.Errorf("a service with %s decides requests by themselves", name)
		}
	}
}

// Admit answers and counts as Decide does, whatever the rule, the request and the store.
func TestAdmitAnswersAsDecide(t *testing.T) {
	for round := range random.Times(3, 30) {
		r := random.Rand(t, uint64(round))
		now := start2026
		clock := func() limit.Instant { return now }
		short, long := newAnswerer(t, clock, true), newAnswerer(t, clock, false)
		keys := []string{"window", "bucket", "sliding", "log", "two", "shadow", "debt", "detailed", "named", "pattern",
			"anything", "outer", "raw", "few", "quota", "flight", "budget", "free", "exempt", "zero", "deny", "error", "local",
			"unknown", "", OpKey}
		for step := range 6000 {
			now += limit.Instant(r.IntN(8_000))
			fail := []string{"error", "panic", "", ""}[r.IntN(4)]
			if r.IntN(20) > 0 {
				fail = ""
			}
			short.store.fail, long.store.fail = fail, fail
			descriptor := func() Descriptor {
				key, value := keys[r.IntN(len(keys))], fmt.Sprint("v", r.IntN(3))
				if r.IntN(10) == 0 {
					value = strings.Repeat("long", 40) + value
				}
				d := desc(key + "=" + value)
				if key == "outer" && r.IntN(4) > 0 {
					d = desc(key + "=" + value + ",inner=x")
				}
				if r.IntN(8) == 0 {
					d = d.withHits(uint64(r.IntN(4)))
				}
				if r.IntN(16) == 0 {
					d = d.refund(1)
				}
				return d
			}
			domain, d, more := "d", descriptor(), []Descriptor(nil)
			if r.IntN(30) == 0 {
				domain = "other"
			}
			if r.IntN(10) == 0 {
				more = append(more, descriptor())
			}
			got, want := short.ask(domain, d, more...), long.ask(domain, d, more...)
			if got != want {
				t.Fatalf("step %d, %s %+v %+v, store %q:\ngot  %s\nwant %s", step, domain, d, more, fail, got, want)
			}
			if step == 3000 { // counters and shapes go on under new rules
				rules := mustLoad(t, strings.Replace(admitRules, "requests_per_unit: 9", "requests_per_unit: 11", 1))
				for _, s := range []*answerer{short, long} {
					if err := s.SetRules(rules); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if short.admitted < 500 {
			t.Errorf("only %d requests were admitted alone", short.admitted)
		}
		got, want := short.counted(now), long.counted(now)
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Errorf("got  %s\nwant %s", got[i], want[i])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d figures, want %d", len(got), len(want))
		}
		if g, w := short.keys(t, now), long.keys(t, now); !slices.Equal(g, w) {
			t.Errorf("the store has %q, want %q", g, w)
		}
	}
}

// A request that passes needs no memory, and is seen.
func TestAdmitDoesNotAllocate(t *testing.T) {
	now := start2026
	a := newAnswerer(t, func() limit.Instant { return now }, true)
	var in Admission
	d, begun := desc("deny=v1"), new(Begun)
	if n := testing.AllocsPerRun(100, func() {
		now += 1_000_000
		if !a.Admit(context.Background(), begun, "d", d.Entries, &in) {
			t.Error("not admitted")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if last := a.Coverage().Shapes()[0].Last(); last.UnixMicro() != int64(now) {
		t.Errorf("last seen at %v, want %v", last, now.Time())
	}
}

// The key in an answer is not memory that the next request uses.
func TestKeyOfARefusalStays(t *testing.T) {
	a := newAnswerer(t, func() limit.Instant { return start2026 }, true)
	var in Admission
	resp, begun := new(Response), new(Begun)
	zero := Request{Domain: "d", Descriptors: []Descriptor{desc("zero=v1")}, InProcess: true}
	a.Admit(context.Background(), begun, "d", zero.Descriptors[0].Entries, &in)
	a.Finish(context.Background(), begun, &zero, resp)
	group := strings.Clone(resp.Inside.Key.Group)
	for range 10 {
		a.Admit(context.Background(), begun, "d", desc("deny=another").Entries, &in)
	}
	if got := resp.Inside.Key.Group; got != group || !strings.Contains(got, "zero") {
		t.Errorf("the key %q became %q", group, got)
	}
}

// A spy is a sink that counts what it sees.
type spy struct{ seen int }

func (s *spy) See(_ *Batch, c *Call) { s.seen += len(c.Decisions) }

// TestSinksSeeEveryRequest: nothing is decided past a sink.
func TestSinksSeeEveryRequest(t *testing.T) {
	s := new(spy)
	h := setup(t, admitRules, func(c *Config) {
		c.Metrics, c.Registry, c.Headers, c.Caps, c.Sinks = nil, nil, Headers{}, memory.Caps(), []Sink{s}
	})
	begun := new(Begun)
	if h.Admit(t.Context(), begun, "d", desc("deny=v1").Entries, new(Admission)) {
		t.Error("a request is admitted past a sink")
	}
	req := &Request{Domain: "d", Descriptors: []Descriptor{desc("deny=v1")}, InProcess: true}
	h.Finish(t.Context(), begun, req, new(Response))
	if s.seen != 1 {
		t.Errorf("the sink has seen %d decisions, want 1", s.seen)
	}
}
