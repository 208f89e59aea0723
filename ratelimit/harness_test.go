package ratelimit

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
)

// modelBackend is limit.Decide over a map: the reference model, with a switch
// for faults. The real backends are tested in their own packages and in
// test/e2e.
type modelBackend struct {
	mu     sync.Mutex
	states map[limit.Key]limit.State
	err    error        // answers every Take
	hang   bool         // waits for the deadline
	takes  int          // calls of Take
	before func() error // if not nil, decides whether a Take fails
	forget bool         // Forget does
}

func newModel() *modelBackend { return &modelBackend{states: map[limit.Key]limit.State{}} }

func (b *modelBackend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		backends.Fail(out, fmt.Errorf("%w: %w", backends.ErrUnavailable, backends.ErrNotApplied))
		return
	}
	b.takes++
	if b.hang {
		<-ctx.Done()
		backends.Fail(out, backends.ErrUnavailable)
		return
	}
	err := b.err
	if err == nil && b.before != nil {
		err = b.before()
	}
	if err != nil {
		backends.Fail(out, err)
		return
	}
	for i := range reqs {
		b.take(&reqs[i], &out[i])
	}
}

func (b *modelBackend) take(req *limit.Request, v *limit.Verdict) {
	states := make([]limit.State, len(req.Ops))
	for i := range req.Ops {
		states[i] = b.states[req.Ops[i].Key]
	}
	limit.Decide(states, req, req.At, v, nil)
	seen := map[limit.Key]bool{}
	for i := range req.Ops {
		if k := req.Ops[i].Key; !seen[k] {
			seen[k] = true
			b.states[k] = states[i]
		}
	}
}

func (b *modelBackend) Ping(context.Context) error { return b.err }
func (b *modelBackend) Close() error               { return nil }

func (b *modelBackend) Forget(_ context.Context, keys []limit.Key) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range keys {
		if b.forget {
			delete(b.states, k)
		}
	}
	return nil
}

func modelCaps(local bool) backends.Caps {
	caps := backends.Caps{Name: "model", Algorithms: map[limit.Algorithm]backends.AlgorithmCaps{},
		Atomicity: backends.Whole, Local: local, Precision: time.Microsecond, MaxOps: 64}
	for _, a := range limit.Algorithms() {
		caps.Algorithms[a] = backends.AlgorithmCaps{MaxUnits: limit.MaxUnits, Overflow: limit.Debt}
	}
	caps.Algorithms[limit.Concurrency] = backends.AlgorithmCaps{MaxUnits: limit.MaxInFlight}
	return caps
}

// A harness is a service on a model backend at a time that the test sets.
type harness struct {
	*testing.T
	*Service
	be, local *modelBackend
	now       limit.Instant
	log       *strings.Builder
	counts    *counting
}

// start2026 is a whole hour, so that windows begin there.
var start2026 = limit.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func setup(t *testing.T, rules string, change ...func(*Config)) *harness {
	t.Helper()
	h := &harness{T: t, be: newModel(), local: newModel(), now: start2026, log: new(strings.Builder),
		counts: newCounting()}
	conf := Config{
		Backend: h.be, Caps: modelCaps(true), Local: h.local,
		Now: func() limit.Instant { return h.now },
		Log: slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Metrics: h.counts.Metrics,
		Registry: memory.NewRegistry(time.Now), Encoder: Wire.Encoder,
		Headers: Headers{RetryAfter: "Retry-After", Rule: "x-headgate-rule"},
	}
	for _, f := range change {
		f(&conf)
	}
	s, err := New(conf, mustLoad(t, rules))
	if err != nil {
		t.Fatal(err)
	}
	h.Service = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Close(ctx)
	})
	return h
}

// unlogged has no log, so that nothing is read for it.
func unlogged(c *Config) { c.Log = slog.New(slog.DiscardHandler) }

func mustLoad(t *testing.T, rules string) *descriptors.Set {
	t.Helper()
	set, problems := rulefile.Load([]rulefile.Source{{Name: "test.yaml", Data: []byte(rules)}}, rulefile.Options{})
	if set == nil {
		t.Fatalf("rules do not load: %v", problems)
	}
	return set
}

// desc makes a descriptor of "key=value,key=value".
func desc(text string) Descriptor {
	var d Descriptor
	for _, part := range strings.Split(text, ",") {
		k, v, _ := strings.Cut(part, "=")
		d.Entries = append(d.Entries, descriptors.Entry{Key: k, Value: v})
	}
	return d
}

func (d Descriptor) withHits(n uint64) Descriptor { d.Hits, d.HasHits = n, true; return d }
func (d Descriptor) refund(n uint64) Descriptor   { d.Refund = true; return d.withHits(n) }

// ask sends one request for the descriptors in domain "d".
func (h *harness) ask(list ...Descriptor) *Response {
	return h.askDomain("d", 0, list...)
}

func (h *harness) askDomain(domain string, hits uint32, list ...Descriptor) *Response {
	resp := new(Response)
	h.Decide(context.Background(), []*Request{{Domain: domain, Descriptors: list, Hits: hits}}, []*Response{resp})
	return resp
}

// summary renders a response as its overall code and those of the statuses, with
// what is left: "OVER: ok/3 over/0".
func summary(r *Response) string {
	if r.Err != nil {
		return "error: " + r.Err.Message
	}
	name := map[bool]string{false: "ok", true: "over"}
	out := strings.ToUpper(name[r.OverLimit]) + ":"
	for _, st := range r.Statuses {
		out += " " + name[st.OverLimit]
		switch {
		case st.limit != nil:
			out += "/" + strconv.Itoa(int(st.Remaining))
		case st.Remaining > 0:
			out += "/unlimited"
		}
	}
	return out
}

func (h *harness) want(r *Response, want string) {
	h.Helper()
	if got := summary(r); got != want {
		h.Errorf("got %q, want %q", got, want)
	}
}

// counting is metrics that tests read by "domain/rule outcome", and what policies decide by
// "domain/rule by policy outcome".
type counting struct {
	*Metrics
	mu      sync.Mutex
	n       map[string]int // what no series has
	records []string       // "policy remaining/limit" of each record
}

func newCounting() *counting {
	m := &counting{Metrics: NewMetrics(), n: map[string]int{}}
	m.recorded = func(p *policySeries, t *PolicyTally) {
		for o, n := range t.Outcomes {
			m.add(p.labels[0]+"/"+p.labels[1]+" by "+p.labels[2]+" "+Outcome(o).String(), int(n))
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.records = append(m.records, fmt.Sprintf("%s %d/%d", p.labels[2], t.Remaining, t.Limit))
	}
	return m
}

func (m *counting) add(name string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n[name] += n
}

func (m *counting) count(name string) int { return m.all()[name] }

// all returns what is counted.
func (m *counting) all() map[string]int {
	m.mu.Lock()
	all := maps.Clone(m.n)
	m.mu.Unlock()
	for _, r := range m.Rows() {
		text := map[string]string{
			"headgate_decisions_total": "%s/%s %s", "headgate_leases_total": "%s/%s %s",
			"headgate_refusals_total":      "%s/%s refused by %s",
			"headgate_overflow_hits_total": "%s/%s overflow of %s", "headgate_concurrency_tier_total": "%s/%s tier %s",
			"headgate_degraded_requests_total": "degraded %s %s",
		}[r.Name]
		if text == "" {
			continue
		}
		r.Each(func(labels []string, v float64, _ *metrics.Counts) {
			var args []any
			for _, l := range labels {
				args = append(args, l)
			}
			all[fmt.Sprintf(text, args...)] += int(v)
		})
	}
	return all
}

func (h *harness) countCall(_ time.Duration, r CallResult, n int) {
	h.counts.add("call "+r.String(), n)
}

func protoRequest(domain string, entries ...string) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: domain}
	for _, text := range entries {
		d := new(common.RateLimitDescriptor)
		for _, e := range desc(text).Entries {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}
