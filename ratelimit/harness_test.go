package ratelimit

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
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

func (b *modelBackend) Forget(context.Context, []limit.Key) error { return nil }
func (b *modelBackend) Ping(context.Context) error                { return b.err }
func (b *modelBackend) Close() error                              { return nil }

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
	counts    *countingMetrics
}

// start2026 is a whole hour, so that windows begin there.
var start2026 = limit.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func setup(t *testing.T, rules string, change ...func(*Config)) *harness {
	t.Helper()
	h := &harness{T: t, be: newModel(), local: newModel(), now: start2026, log: new(strings.Builder), counts: newCounting()}
	conf := Config{
		Backend: h.be, Caps: modelCaps(true), Local: h.local,
		Now: func() limit.Instant { return h.now },
		Log: slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Metrics: h.counts,
		Registry: memory.NewRegistry(time.Now),
		Headers:  Headers{RetryAfter: "Retry-After", Rule: "x-headgate-rule"},
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

// countingMetrics counts by "domain/rule outcome", and what policies decide by
// "domain/rule by policy outcome".
type countingMetrics struct {
	mu      sync.Mutex
	n       map[string]int
	records []string // "policy remaining/limit" of each record
}

func newCounting() *countingMetrics { return &countingMetrics{n: map[string]int{}} }

type countFunc func()

func (f countFunc) Inc() { f() }

func (m *countingMetrics) Rule(domain, rule string) *RuleCounters {
	var c RuleCounters
	for o := range NumOutcomes {
		name := domain + "/" + rule + " " + o.String()
		c[o] = m.hits(name)
	}
	return &c
}

func (m *countingMetrics) Values(domain, _, values string) *RuleCounters {
	return m.Rule(domain, values)
}

func (m *countingMetrics) Refusals(domain, rule, limit string) HitCounter {
	return m.hits(domain + "/" + rule + " refused by " + limit)
}

type hitFunc func(n int64)

func (f hitFunc) Count(n int64) { f(n) }

func (m *countingMetrics) Overflow(domain, rule, limit string) HitCounter {
	return m.hits(domain + "/" + rule + " overflow of " + limit)
}

func (m *countingMetrics) hits(name string) HitCounter {
	return hitFunc(func(n int64) {
		for range n {
			m.add(name)
		}
	})
}

func (m *countingMetrics) Lease(domain, rule string) *leases.Counters {
	var c leases.Counters
	for e := range leases.NumEvents {
		name := domain + "/" + rule + " " + e.String()
		c[e] = countFunc(func() { m.add(name) })
	}
	return &c
}

// A policyRecord is a recorder of a policy.
type policyRecord struct {
	m            *countingMetrics
	rule, policy string
}

func (m *countingMetrics) Policy(domain, rule, policy string) PolicyRecorder {
	return &policyRecord{m, domain + "/" + rule, policy}
}

func (m *countingMetrics) ForgetPolicy(domain, rule, policy string) {
	m.add(domain + "/" + rule + " forgets " + policy)
}

func (r *policyRecord) Record(t *PolicyTally) {
	for o, n := range t.Outcomes {
		r.m.hits(r.rule + " by " + r.policy + " " + Outcome(o).String()).Count(n)
	}
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.m.records = append(r.m.records, fmt.Sprintf("%s %d/%d", r.policy, t.Remaining, t.Limit))
}

func (m *countingMetrics) Tier(domain, rule, tier string) Counter {
	return countFunc(func() { m.add(domain + "/" + rule + " tier " + tier) })
}

func (m *countingMetrics) count(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n[name]
}

func (m *countingMetrics) add(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n[name]++
}

func (m *countingMetrics) Degraded(cause, policy string) { m.add("degraded " + cause + " " + policy) }

func (h *harness) countCall(_ time.Duration, r CallResult, n int) {
	for range n {
		h.counts.add("call " + r.String())
	}
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
