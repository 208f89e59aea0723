package ratelimit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

const basic = `
domain: d
descriptors:
  - key: k
    rate_limit: {unit: minute, requests_per_unit: 2, name: two}
  - key: other
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: free
    rate_limit: {unlimited: true}
  - key: exempt
  - key: zero
    rate_limit: {unit: second, requests_per_unit: 0}
`

// Rows of the reference service's semantics that are the service's part; the
// matcher's rows are in package descriptors.
func TestAnswersFollowTheReference(t *testing.T) {
	t.Run("row07_no_match_is_ok", func(t *testing.T) {
		h := setup(t, basic)
		h.want(h.ask(desc("nobody=1")), "OK: ok")
		h.want(h.askDomain("unknown", 0, desc("k=1")), "OK: ok")
		h.want(h.ask(Descriptor{}), "OK: ok")
		if h.be.takes != 0 {
			t.Errorf("backend was asked %d times", h.be.takes)
		}
	})
	t.Run("row08_node_without_limit_exempts", func(t *testing.T) {
		h := setup(t, basic)
		h.want(h.ask(desc("exempt=1")), "OK: ok")
	})
	t.Run("row14_zero_blocks_all", func(t *testing.T) {
		h := setup(t, basic)
		r := h.ask(desc("zero=1"))
		h.want(r, "OVER: over/0")
		for _, hd := range r.Headers {
			if hd.Name == "Retry-After" {
				t.Errorf("Retry-After %s on a limit that never opens", hd.Value)
			}
		}
	})
	t.Run("row15_unlimited", func(t *testing.T) {
		h := setup(t, basic)
		r := h.ask(desc("free=1"))
		h.want(r, "OK: ok/unlimited")
		if r.Statuses[0].Remaining != 1<<32-1 || h.be.takes != 0 {
			t.Errorf("remaining %d, %d takes", r.Statuses[0].Remaining, h.be.takes)
		}
	})
	t.Run("row16_replaces", func(t *testing.T) {
		h := setup(t, `
domain: d
descriptors:
  - {key: all, rate_limit: {unit: minute, requests_per_unit: 1, name: base}}
  - {key: vip, rate_limit: {unit: minute, requests_per_unit: 9, name: vip, replaces: [{name: base}]}}
  - {key: super, rate_limit: {unlimited: true, replaces: [{name: vip}, {name: base}]}}
`)
		h.want(h.ask(desc("all=1"), desc("vip=1")), "OK: ok ok/8")
		h.want(h.ask(desc("all=1"), desc("vip=1")), "OK: ok ok/7")
		h.want(h.ask(desc("all=1"), desc("vip=1"), desc("super=1")), "OK: ok ok ok/unlimited")
		h.want(h.ask(desc("all=1")), "OK: ok/0")
		h.want(h.ask(desc("all=1")), "OVER: over/0")
	})
	t.Run("row17_shadow_mode", func(t *testing.T) {
		h := setup(t, `
domain: d
descriptors:
  - {key: k, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
`)
		h.want(h.ask(desc("k=1")), "OK: ok/0")
		h.want(h.ask(desc("k=1")), "OK: ok/0")
		if h.counts.count("d/k shadow_over_limit") != 1 || h.counts.count("d/k ok") != 1 {
			t.Errorf("counts %v", h.counts.all())
		}
	})
	t.Run("row18_quota_mode", func(t *testing.T) {
		h := setup(t, `
domain: d
descriptors:
  - {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: hard, rate_limit: {unit: minute, requests_per_unit: 3}}
`)
		h.want(h.ask(desc("q1=1"), desc("q2=1"), desc("hard=1")), "OK: ok/0 ok/1 ok/2")
		h.want(h.ask(desc("q1=1"), desc("q2=1"), desc("hard=1")), "OK: over/0 ok/0 ok/1")
		// Every quota is spent: refused, and the hard limit is not charged.
		h.want(h.ask(desc("q1=1"), desc("q2=1"), desc("hard=1")), "OVER: over/0 over/0 ok/0")
		h.want(h.ask(desc("hard=1")), "OK: ok/0")
		h.want(h.ask(desc("hard=1")), "OVER: over/0")
	})
	t.Run("row19_metadata", func(t *testing.T) {
		h := setup(t, `
domain: d
descriptors:
  - {key: a, metadata: {tier: gold, deep: {x: 1}}, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: b, metadata: {tier: silver, deep: {x: 2, y: 3}}, detailed_metric: true,
     rate_limit: {unit: minute, requests_per_unit: 9}}
`)
		want := map[string]any{"metadata": map[string]any{"tier": "gold", "deep": map[string]any{"x": 1.0, "y": 3.0}}}
		sameMetadata(t, h.ask(desc("a=1"), desc("b=1")), want)
		sameMetadata(t, h.ask(desc("b=1")),
			map[string]any{"metadata": map[string]any{"tier": "silver", "deep": map[string]any{"x": 2.0, "y": 3.0}}})
	})
	t.Run("row22_override", func(t *testing.T) {
		h := setup(t, basic)
		d := desc("k=1")
		d.HasOverride, d.Override = true, Override{RequestsPerUnit: 3, Unit: 3}
		h.want(h.ask(d), "OK: ok/2")
		h.want(h.ask(d), "OK: ok/1")
		d.Override.Unit = 0 // the reference service crashes here
		h.want(h.ask(d), "error: descriptors[0].limit: window 0s is outside 1ms to 10 years")
		d.Override = Override{RequestsPerUnit: 3, Unit: 6, Multiplier: 1<<32 - 1}
		if r := h.ask(d); r.Err == nil {
			t.Errorf("a window of 4 billion years was accepted: %s", summary(r))
		}
		h.want(h.askDomain("unknown", 0, d), "OK: ok")
	})
	t.Run("row23_request_hits", func(t *testing.T) {
		h := setup(t, basic)
		h.want(h.askDomain("d", 2, desc("other=1")), "OK: ok/3")
		h.want(h.askDomain("d", 4, desc("other=1")), "OVER: over/3")
		h.want(h.askDomain("d", 0, desc("other=1")), "OK: ok/2")
	})
	t.Run("row24_descriptor_hits", func(t *testing.T) {
		h := setup(t, basic)
		h.want(h.askDomain("d", 9, desc("other=1").withHits(2)), "OK: ok/3")
		h.want(h.ask(desc("other=1").withHits(0)), "OK: ok/3")
		h.want(h.ask(desc("other=1").withHits(3)), "OK: ok/0")
		h.want(h.ask(desc("other=1").withHits(0)), "OVER: over/0")
		h.want(h.ask(desc("other=1").withHits(1<<63)), "OVER: over/0")
	})
	t.Run("row25_negative_hits", func(t *testing.T) {
		h := setup(t, basic)
		h.want(h.ask(desc("other=1").withHits(4)), "OK: ok/1")
		h.want(h.ask(desc("other=1").refund(3)), "OK: ok/4")
		h.want(h.ask(desc("other=1").refund(1<<63)), "OK: ok/5")
	})
	t.Run("row28_statuses_keep_order", func(t *testing.T) {
		h := setup(t, basic)
		h.want(h.ask(desc("free=1"), desc("k=1"), desc("nobody=1"), desc("other=1")), "OK: ok/unlimited ok/1 ok ok/4")
	})
	t.Run("row29_request_errors", func(t *testing.T) {
		h := setup(t, basic)
		h.want(h.askDomain("", 0, desc("k=1")), "error: rate limit domain must not be empty")
		h.want(h.ask(), "error: rate limit descriptor list must not be empty")
		h.want(h.ask(desc("=1")), "error: descriptors[0].entries[0].key must not be empty")
	})
	t.Run("row58_global_shadow_mode", func(t *testing.T) {
		h := setup(t, basic, func(c *Config) { c.ShadowMode = true })
		h.want(h.askDomain("d", 2, desc("k=1")), "OK: ok/0")
		h.want(h.ask(desc("k=1")), "OK: over/0")
	})
	t.Run("row59_global_quota_mode", func(t *testing.T) {
		h := setup(t, basic, func(c *Config) { c.QuotaMode = true })
		h.want(h.askDomain("d", 2, desc("k=1")), "OK: ok/0")
		h.want(h.ask(desc("k=1"), desc("nobody=1")), "OK: over/0 ok")
		h.want(h.ask(desc("k=1")), "OVER: over/0")
	})
}

func sameMetadata(t *testing.T, r *Response, want map[string]any) {
	t.Helper()
	got := new(structpb.Struct)
	var encoded []byte
	for _, part := range r.metadata {
		encoded = append(encoded, part...)
	}
	if err := proto.Unmarshal(encoded, got); err != nil {
		t.Fatal(err)
	}
	wantStruct, err := structpb.NewStruct(want)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, wantStruct) {
		t.Errorf("metadata %v, want %v", got, wantStruct)
	}
}

func TestRefusedRequestCostsNothing(t *testing.T) {
	h := setup(t, basic)
	h.want(h.askDomain("d", 2, desc("k=1")), "OK: ok/0")
	for range 10 {
		h.want(h.ask(desc("other=1"), desc("k=1")), "OVER: ok/5 over/0")
	}
	h.want(h.ask(desc("other=1")), "OK: ok/4")
}

func TestChargeEach(t *testing.T) {
	h := setup(t, basic, func(c *Config) { c.Charge = descriptors.ChargeEach })
	h.want(h.askDomain("d", 2, desc("k=1")), "OK: ok/0")
	h.want(h.ask(desc("other=1"), desc("k=1")), "OVER: ok/4 over/0")
	h.want(h.ask(desc("other=1"), desc("k=1")), "OVER: ok/3 over/0")
}

// With charge: each, answers to hits of one are the reference service's, also
// where a request has one descriptor twice.
func TestChargeEachSameDescriptorTwice(t *testing.T) {
	h := setup(t, strings.Replace(basic, "requests_per_unit: 2", "requests_per_unit: 3", 1),
		func(c *Config) { c.Charge = descriptors.ChargeEach })
	h.want(h.ask(desc("k=1"), desc("k=1")), "OK: ok/2 ok/1")
	h.want(h.ask(desc("k=1"), desc("k=1")), "OVER: ok/0 over/0")
	all := setup(t, basic)
	// nothing is charged, so two are left
	all.want(all.ask(desc("k=1"), desc("k=1"), desc("k=1")), "OVER: ok/2 ok/2 over/2")
	all.want(all.ask(desc("k=1"), desc("k=1")), "OK: ok/1 ok/0")
}

const several = `
domain: d
descriptors:
  - key: path
    value: /pay
    response: {content: "slow down", headers: {x-why: too-fast}}
    limits:
      - {name: burst, algorithm: token_bucket, rate: 1/s, burst: 3}
      - {name: daily, algorithm: sliding_log, limit: 4, window: 24h}
      - {name: smooth, algorithm: sliding_window, limit: 1, window: 1m, shadow: true}
`

func TestSeveralLimits(t *testing.T) {
	h := setup(t, several)
	pay := desc("path=/pay")
	h.want(h.ask(pay), "OK: ok/2")
	h.want(h.ask(pay), "OK: ok/1")
	h.want(h.ask(pay), "OK: ok/0")
	r := h.ask(pay)
	h.want(r, "OVER: over/0")
	wantHeaders(t, r, "Retry-After: 1|x-headgate-rule: d/path_/pay:burst|x-why: too-fast")
	sameMetadata(t, r, map[string]any{"rule": "d/path_/pay:burst"})
	if r.Body != "slow down" {
		t.Errorf("body %q", r.Body)
	}
	h.now += 10_000_000
	h.want(h.ask(pay), "OK: ok/0") // the daily limit is the closer one now
	r = h.ask(pay)
	wantHeaders(t, r, "Retry-After: 86390|x-headgate-rule: d/path_/pay:daily|x-why: too-fast")
	if h.counts.count("d/path_/pay shadow_over_limit") == 0 {
		t.Errorf("the shadow limit was never counted: %v", h.counts.all())
	}
	if !strings.Contains(h.log.String(), "rule=d/path_/pay:burst") {
		t.Errorf("the log does not name the rule: %s", h.log)
	}
}

func wantHeaders(t *testing.T, r *Response, want string) {
	t.Helper()
	var got []string
	for _, hd := range r.Headers {
		got = append(got, hd.Name+": "+hd.Value)
	}
	if strings.Join(got, "|") != want {
		t.Errorf("headers %q, want %q", got, want)
	}
}

func TestHeadersDescribeTheClosestLimit(t *testing.T) {
	h := setup(t, basic, func(c *Config) {
		c.Headers = Headers{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}
	})
	h.now += 12_500_000
	wantHeaders(t, h.ask(desc("other=1"), desc("k=1")), "RateLimit-Limit: 2|RateLimit-Remaining: 1|RateLimit-Reset: 48")
	wantHeaders(t, h.ask(desc("nobody=1")), "")
	h.ask(desc("k=1"))
	wantHeaders(t, h.ask(desc("other=1"), desc("k=1")), "RateLimit-Limit: 2|RateLimit-Remaining: 0|RateLimit-Reset: 48")
}

func TestDynamicMetadata(t *testing.T) {
	h := setup(t, basic, func(c *Config) { c.Metadata = true })
	d := desc("k=1,b=2").withHits(3)
	d.HasOverride, d.Override = true, Override{RequestsPerUnit: 9, Unit: 2}
	sameMetadata(t, h.askDomain("d", 2, d), map[string]any{
		"domain": "d", "hitsAddend": 2.0,
		"descriptors": []any{map[string]any{
			"entries": []any{"k=1", "b=2"}, "hitsAddend": 3.0,
			"limit": map[string]any{"requestsPerUnit": 9.0, "unit": "MINUTE"},
		}},
	})
}

// Counters survive a reload, also one that changes the limit's figures.
func TestReloadKeepsCounters(t *testing.T) {
	h := setup(t, basic)
	h.want(h.ask(desc("k=1")), "OK: ok/1")
	if err := h.SetRules(mustLoad(t, strings.Replace(basic, "requests_per_unit: 2", "requests_per_unit: 10", 1))); err !=
		nil {
		t.Fatal(err)
	}
	h.want(h.ask(desc("k=1")), "OK: ok/8")
}

func TestRulesTheBackendCannotKeep(t *testing.T) {
	h := setup(t, basic)
	caps := modelCaps(true)
	delete(caps.Algorithms, limit.SlidingLog)
	set := mustLoad(t, several)
	h.Service.conf.Caps = caps
	err := h.SetRules(set)
	if err == nil || !strings.Contains(err.Error(), "test.yaml:4: the backend model cannot keep this limit") ||
		!strings.Contains(err.Error(), "d/path_/pay") || !strings.Contains(err.Error(), "sliding_log") {
		t.Fatalf("got %v", err)
	}
	h.want(h.ask(desc("k=1")), "OK: ok/1") // the old rules stay
}

// Where a backend keeps one log for each value of counter: value, limits that
// cannot share it are refused, with their place.
func TestRulesThatCannotShareALog(t *testing.T) {
	caps := modelCaps(false)
	caps.SharedLogs = true
	rule := func(key string, limits ...string) string {
		text := "  - key: " + key + "\n    limits:\n"
		for i, l := range limits {
			text += fmt.Sprintf("      - {name: l%d, algorithm: %s}\n", i, l)
		}
		return text
	}
	const second, minute = "sliding_log, limit: 10, window: 1s, counter: value",
		"sliding_log, limit: 20, window: 1m, counter: value"
	for name, c := range map[string]struct{ rules, want string }{
		"two of one rule":             {rule("a", second, minute), "test.yaml:3: the backend model cannot keep this limit"},
		"two of one rule, one window": {rule("a", second, second), "a rule may have only one limit with sliding_log"},
		"windows of two rules": {rule("a", second) + rule("b", minute),
			"test.yaml:6: the backend model cannot keep this limit"},
		"the other rule's place":      {rule("a", second) + rule("b", minute), "the other limit is in d/a (test.yaml:3)"},
		"one window":                  {rule("a", second) + rule("b", second), ""},
		"another algorithm beside it": {rule("a", second, "token_bucket, rate: 20/min, counter: value"), ""},
		"counters of entries":         {strings.ReplaceAll(rule("a", second, minute), ", counter: value", ""), ""},
	} {
		err := joined(CapProblems(mustLoad(t, "domain: d\ndescriptors:\n"+c.rules), &caps))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if err := joined(CapProblems(mustLoad(t, "domain: d\ndescriptors:\n"+c.rules),
			&backends.Caps{Name: "model", Algorithms: caps.Algorithms})); err != nil {
			t.Errorf("%s, with logs of their own: %v", name, err)
		}
	}
}

// Many requests in one Decide are answered as if they had come one by one.
func TestSliceIsDecidedInOneCall(t *testing.T) {
	one, many := setup(t, basic), setup(t, basic)
	texts := []string{"k=1", "k=1", "nobody=1", "k=1", "other=2", "k=2", "free=1"}
	var reqs []*Request
	var resps []*Response
	for _, text := range texts {
		reqs = append(reqs, &Request{Domain: "d", Descriptors: []Descriptor{desc(text)}})
		resps = append(resps, new(Response))
	}
	reqs = append(reqs, &Request{})
	resps = append(resps, new(Response))
	many.Decide(context.Background(), reqs, resps)
	for i, text := range texts {
		if want, got := summary(one.ask(desc(text))), summary(resps[i]); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	if many.be.takes != 1 {
		t.Errorf("%d takes for one slice", many.be.takes)
	}
	if resps[len(texts)].Err == nil {
		t.Error("an empty request was answered")
	}
}

const failing = `
domain: d
descriptors:
  - {key: allow, on_backend_error: allow, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: deny, on_backend_error: deny, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: local, on_backend_error: local, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: shadow, on_backend_error: deny, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: silent, rate_limit: {unit: minute, requests_per_unit: 2}}
`

func TestFailurePolicy(t *testing.T) {
	fail := func(h *harness) { h.be.err = backends.ErrUnavailable }
	for _, tc := range []struct {
		name string
		ask  []Descriptor
		want []string
	}{
		{"allow", []Descriptor{desc("allow=1")}, []string{"OK: ok", "OK: ok", "OK: ok"}},
		{"deny", []Descriptor{desc("deny=1")}, []string{"OVER: over/0"}},
		{"local", []Descriptor{desc("local=1")}, []string{"OK: ok/1", "OK: ok/0", "OVER: over/0"}},
		{"shadow never denies", []Descriptor{desc("shadow=1")}, []string{"OK: ok"}},
		{"default", []Descriptor{desc("silent=1")}, []string{"OK: ok"}},
		{"default of databases", []Descriptor{desc("silent=1")}, []string{"OVER: over/0"}},
		{"deny wins, local is not charged", []Descriptor{desc("local=1"), desc("deny=1")},
			[]string{"OVER: ok over/0", "OVER: ok over/0"}},
		{"local beside allow", []Descriptor{desc("allow=1"), desc("local=1")},
			[]string{"OK: ok ok/1", "OK: ok ok/0", "OVER: ok over/0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := setup(t, failing, remote, func(c *Config) { c.Caps.DenyOnFailure = tc.name == "default of databases" })
			fail(h)
			for _, want := range tc.want {
				r := h.ask(tc.ask...)
				h.want(r, want)
				if !r.Degraded {
					t.Error("not marked as degraded")
				}
			}
			if !strings.Contains(h.log.String(), "backend failed, answered by policy") {
				t.Errorf("log: %s", h.log)
			}
			h.be.err = nil
			h.want(h.ask(desc("deny=2")), "OK: ok/1")
		})
	}
	t.Run("a margin before the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := setup(t, failing, remote, func(c *Config) { c.Margin = 7 * time.Second })
			h.be.hang = true
			for deadline, want := range map[time.Duration]time.Duration{10 * time.Second: 3 * time.Second,
				100 * time.Second: 90 * time.Second, 50 * time.Second: 43 * time.Second} {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				began, resp := time.Now(), new(Response)
				h.Decide(ctx, []*Request{{Domain: "d", Descriptors: []Descriptor{desc("deny=1")}}}, []*Response{resp})
				if took := time.Since(began); took != want {
					t.Errorf("answered %v after a call with a deadline of %v, want %v", took, deadline, want)
				}
				cancel()
			}
		})
	})
	t.Run("inside the deadline", func(t *testing.T) {
		h := setup(t, failing, remote)
		h.be.hang = true
		// A tenth of it is kept to answer in: enough on a busy machine.
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		resp := new(Response)
		h.Decide(ctx, []*Request{{Domain: "d", Descriptors: []Descriptor{desc("deny=1")}}}, []*Response{resp})
		if ctx.Err() != nil {
			t.Error("answered after the caller's deadline")
		}
		h.want(resp, "OVER: over/0")
	})
	t.Run("without a deadline", func(t *testing.T) {
		h := setup(t, failing, remote, func(c *Config) { c.Timeout = 20 * time.Millisecond })
		h.be.hang = true
		h.want(h.ask(desc("allow=1")), "OK: ok")
	})
	t.Run("the answer says so", func(t *testing.T) {
		h := setup(t, failing, remote)
		fail(h)
		sameMetadata(t, h.ask(desc("deny=1")), map[string]any{"degraded": "deny", "rule": "d/deny"})
		sameMetadata(t, h.ask(desc("allow=1")), map[string]any{"degraded": "allow"})
		if h.counts.count("degraded backend_error deny") != 1 || h.counts.count("d/deny failed_closed") != 1 ||
			h.counts.count("d/allow failed_open") != 1 {
			t.Errorf("counts %v", h.counts.all())
		}
	})
}

// A flood of refusals does not flood the log.
func TestRefusalsAreSampled(t *testing.T) {
	h := setup(t, basic)
	for range 500 {
		h.ask(desc("k=1"))
	}
	if n := strings.Count(h.log.String(), "request refused"); n < 1 || n > 3*refusalsPerSecond {
		t.Errorf("%d log lines for 498 refusals", n)
	}
}

func TestDetailedMetricIsLabelledByValues(t *testing.T) {
	h := setup(t, `
domain: d
descriptors:
  - {key: k, detailed_metric: true,
     rate_limit: {unit: minute, requests_per_unit: 9}}
`)
	h.ask(desc("k=alice"))
	if h.counts.count("d/k_alice ok") != 1 {
		t.Errorf("counts %v", h.counts.all())
	}
}

const overloading = `
domain: d
descriptors:
  - {key: default, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: allow, on_overload: allow, on_backend_error: deny, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: deny, on_overload: deny, on_backend_error: allow, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: error, on_overload: error, on_backend_error: error, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: shadow, on_overload: error, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: local, on_backend_error: local, rate_limit: {unit: minute, requests_per_unit: 2}}
`

// TestOverloadIsNotFailure: what cannot be asked about while the backend answers
// has a policy of its own, which refuses by default.
func TestOverloadIsNotFailure(t *testing.T) {
	overload := fmt.Errorf("%w: %w: %w", backends.ErrOverloaded, backends.ErrUnavailable, backends.ErrNotApplied)
	for _, tc := range []struct {
		err  error
		ask  []Descriptor
		want string
	}{
		{overload, []Descriptor{desc("default=1")}, "OVER: over/0"},
		{overload, []Descriptor{desc("local=1")}, "OVER: over/0"},
		{overload, []Descriptor{desc("allow=1")}, "OK: ok"},
		{overload, []Descriptor{desc("deny=1")}, "OVER: over/0"},
		{overload, []Descriptor{desc("error=1")}, "unavailable"},
		{overload, []Descriptor{desc("shadow=1")}, "OK: ok"},
		{overload, []Descriptor{desc("error=1"), desc("deny=1")}, "OVER: ok over/0"},
		{overload, []Descriptor{desc("allow=1"), desc("error=1")}, "unavailable"},
		{backends.ErrUnavailable, []Descriptor{desc("deny=1")}, "OK: ok"},
		{backends.ErrUnavailable, []Descriptor{desc("allow=1")}, "OVER: over/0"},
		{backends.ErrUnavailable, []Descriptor{desc("error=1")}, "unavailable"},
		{backends.ErrUnavailable, []Descriptor{desc("error=1"), desc("local=1")}, "unavailable"},
	} {
		h := setup(t, overloading, func(c *Config) { c.Caps = modelCaps(false) })
		h.be.err = tc.err
		r := h.ask(tc.ask...)
		got := summary(r)
		if r.Err != nil && r.Err.Code == codeUnavailable {
			got = "unavailable"
		}
		if got != tc.want || !r.Degraded || h.local.takes != 0 {
			t.Errorf("%v, %v: got %q, want %q; %d local takes", tc.err, tc.ask, got, tc.want, h.local.takes)
		}
	}
	h := setup(t, overloading, func(c *Config) { c.Caps = modelCaps(false) })
	h.be.err = overload
	sameMetadata(t, h.ask(desc("deny=1")), map[string]any{"overloaded": "deny", "rule": "d/deny"})
	if h.counts.count("degraded overload deny") != 1 || h.counts.count("d/deny overload") != 1 {
		t.Errorf("counts %v", h.counts.all())
	}
	h = setup(t, overloading, func(c *Config) { c.Caps = modelCaps(false); c.OnOverload = descriptors.FailAllow })
	h.be.err = overload
	h.want(h.ask(desc("default=1")), "OK: ok")
}

// A recallingBackend cannot ask its store, which has refused before.
type recallingBackend struct{ *modelBackend }

func (recallingBackend) Take(_ context.Context, reqs []limit.Request, out []limit.Verdict) {
	for i := range reqs {
		out[i].Reset(len(reqs[i].Ops))
		out[i].Recalled, out[i].Outcomes[0].Retry = true, time.Minute
	}
}

// TestRecalledRefusalIsOneOfTheLimit: no policy answers, and the answer says what it rests on.
func TestRecalledRefusalIsOneOfTheLimit(t *testing.T) {
	h := setup(t, failing, func(c *Config) {
		c.Caps, c.Backend, c.LogRefusals = modelCaps(false), recallingBackend{newModel()}, 10
	})
	for _, key := range []string{"allow=1", "local=1", "silent=1"} {
		r := h.ask(desc(key))
		name, _, _ := strings.Cut(key, "=")
		h.want(r, "OVER: over/0")
		sameMetadata(t, r, map[string]any{"recalled": "deny", "rule": "d/" + name})
		if r.Degraded || r.Uncounted || h.local.takes != 0 {
			t.Errorf("%s: %+v, %d local takes", key, r, h.local.takes)
		}
	}
	if !strings.Contains(h.log.String(), "cause=recalled") {
		t.Errorf("log: %s", h.log)
	}
}

type burstingBackend struct{ *modelBackend }

func (burstingBackend) Take(context.Context, []limit.Request, []limit.Verdict) { panic("burst") }

// TestPanicBelowIsBackendFailure: whatever panics below the service, the calls
// concerned are answered by policy.
func TestPanicBelowIsBackendFailure(t *testing.T) {
	for _, local := range []bool{false, true} {
		counted := ""
		h := setup(t, failing, func(c *Config) {
			c.Caps, c.Backend = modelCaps(local), burstingBackend{newModel()}
			c.Panics = &background.Reporter{Log: c.Log, Count: func(where string) { counted = where }}
		})
		h.want(h.ask(desc("deny=1")), "OVER: over/0")
		h.want(h.ask(desc("allow=1")), "OK: ok")
		if counted != "backend" || !strings.Contains(h.log.String(), "service_test.go") {
			t.Errorf("counted %q, log: %s", counted, h.log)
		}
	}
}
