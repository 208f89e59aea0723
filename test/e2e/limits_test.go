package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const limitRules = `
domain: e2e
descriptors:
- key: key
  value: five
  rate_limit: {name: five, unit: hour, requests_per_unit: 5}
  response: {content: "slow down", headers: {x-reason: too many}}
- {key: key, value: plain, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: key, value: closed, rate_limit: {name: never, unit: second, requests_per_unit: 0}}
- {key: key, value: open, rate_limit: {unlimited: true}}
- {key: key, value: wide, rate_limit: {name: wide, unit: hour, requests_per_unit: 100}}
- {key: key, value: wide-each, charge: each, rate_limit: {name: wide, unit: hour, requests_per_unit: 100}}
- key: key
  value: bucket
  limits:
  - {name: bucket, algorithm: token_bucket, rate: 3/20h}
  - {name: log, algorithm: sliding_log, limit: 5, window: 24h}
- key: key
  value: log
  limits:
  - {name: bucket, algorithm: token_bucket, rate: 5/20h}
  - {name: log, algorithm: sliding_log, limit: 3, window: 24h}
- key: key
  value: window
  limits: [{name: window, algorithm: sliding_window, limit: 3, window: 36h}]
- key: key
  value: watched
  limits:
  - {name: watched, algorithm: sliding_log, limit: 1, window: 24h, shadow: true}
  - {name: bound, algorithm: token_bucket, rate: 4/20h}
- {key: key, value: mode, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: key, value: refill, limits: [{name: refill, algorithm: token_bucket, rate: 2/s, burst: 1}]}
- {key: key, value: hits, limits: [{name: hits, algorithm: sliding_log, limit: 10, window: 24h}]}
- {key: key, value: refund, rate_limit: {name: refund, unit: hour, requests_per_unit: 10}}
- {key: other, value: two, rate_limit: {name: two, unit: hour, requests_per_unit: 2}}
- {key: route, value: one, rate_limit: {name: one, unit: hour, requests_per_unit: 1}}
- {key: route, value: three, rate_limit: {name: three, unit: hour, requests_per_unit: 3}}
`

// startLimits runs headgate with limitRules behind an Envoy.
func startLimits(t *testing.T, env environment, routes []route, flags ...string) (*service, *front) {
	t.Helper()
	insideHour()
	s := startService(t, append([]string{"--rules", writeFile(t, "rules.yaml", limitRules), "--backend", env.backend},
		flags...)...)
	return s, startFront(t, env.envoy, setup{Services: []string{s.GRPC}, Routes: routes})
}

func TestRefusalHasTheRulesResponse(t *testing.T) {
	onBackends(t, func(t *testing.T, env environment) {
		_, f := startLimits(t, env, nil)
		for left := 4; left >= 0; left-- {
			a := f.Get("/hello", "x-key", "five")
			if a.Code != 200 || a.Body != "hello" || a.Remaining() != left || a.Rule() != "" {
				t.Fatalf("with %d left after it the request is answered with %v", left, a)
			}
			wantHeader(t, a, "x-ratelimit-limit", `5, 5;w=3600;name="five"`)
			wantSeconds(t, a, "x-ratelimit-reset", 1, 3600)
		}
		a := f.Get("/refused", "x-key", "five")
		if a.Code != 429 || a.Body != "slow down" {
			t.Errorf("beyond the limit the answer is %v", a)
		}
		wantHeader(t, a, "x-reason", "too many")
		wantHeader(t, a, "x-headgate-rule", "e2e/key_five:five")
		wantHeader(t, a, "x-envoy-ratelimited", "true")
		wantHeader(t, a, "x-ratelimit-limit", `5, 5;w=3600;name="five"`)
		wantHeader(t, a, "x-ratelimit-remaining", "0")
		wantSeconds(t, a, "x-ratelimit-reset", 1, 3600)
		wantSeconds(t, a, "retry-after", 1, 3600)
		f.WantAccessLog("path=/hello", "code=200", "rule=-")
		f.WantAccessLog("path=/refused", "code=429", "rule=e2e/key_five:five")

		f.WantCodes("200 429", "/", "x-key", "plain")
		f.WantCodes("429", "/", "x-key", "closed")
		f.WantCodes(codes(20, 200), "/", "x-key", "open")
		f.WantCodes(codes(20, 200), "/", "x-key", "no rule has this value")
		if a := f.Get("/", "x-key", "plain"); a.Rule() != "e2e/key_plain" {
			t.Errorf("a limit without a name is called %q", a.Rule())
		}
	})
}

// TestManyDescriptors has requests to which two rules apply, of which the
// second one refuses the third request.
func TestManyDescriptors(t *testing.T) {
	onBackends(t, func(t *testing.T, env environment) {
		_, f := startLimits(t, env, nil)
		for range 3 {
			f.Get("/", "x-key", "wide", "x-other", "two")
		}
		a := f.Get("/", "x-key", "wide", "x-other", "two")
		if a.Code != 429 || a.Rule() != "e2e/other_two:two" || a.Remaining() != 0 {
			t.Errorf("with one of two limits spent the answer is %v", a)
		}
		limits := a.Header.Get("x-ratelimit-limit")
		if !strings.Contains(limits, `100;w=3600;name="wide"`) || !strings.Contains(limits, `2;w=3600;name="two"`) {
			t.Errorf("x-ratelimit-limit is %q, want both limits in it", limits)
		}
		// Two were admitted, two refused, and this is one more.
		if left := f.Get("/", "x-key", "wide").Remaining(); left != 97 {
			t.Errorf("of 100 there are %d left, want 97: refused requests must not count", left)
		}
		f.WantCodes("429 429", "/", "x-key", "wide-each", "x-other", "two")
		if left := f.Get("/", "x-key", "wide-each").Remaining(); left != 97 {
			t.Errorf("of 100 there are %d left, want 97: with charge: each refused requests count", left)
		}
	})
}

func TestChargeEachFlag(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		_, f := startLimits(t, env, nil, "--charge", "each")
		f.WantCodes("200 200 429 429", "/", "x-key", "wide", "x-other", "two")
		if left := f.Get("/", "x-key", "wide").Remaining(); left != 95 {
			t.Errorf("of 100 there are %d left, want 95", left)
		}
	})
}

// TestAnswerFlags has flags that change what every answer says.
func TestAnswerFlags(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		_, f := startLimits(t, env, nil, "--shadow-mode", "--response-headers", "--limit-header", "X-Most")
		for range 7 {
			a := f.Get("/", "x-key", "five")
			if a.Code != 200 || a.Rule() != "" {
				t.Errorf("with --shadow-mode the answer is %v", a)
			}
			wantHeader(t, a, "x-most", "5")
			wantSeconds(t, a, "ratelimit-reset", 1, 3600)
		}
		_, f = startLimits(t, env, nil, "--rule-header", "x-why", "--retry-after-header", "")
		a := f.Get("/", "x-key", "closed")
		if a.Code != 429 || a.Rule() != "" || a.Header.Get("retry-after") != "" || a.Header.Get("ratelimit-limit") != "" {
			t.Errorf("with other headers the answer is %v", a)
		}
		wantHeader(t, a, "x-why", "e2e/key_closed:never")
	})
}

func TestRoutesHaveTheirOwnLimits(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		limits := func(name string) string {
			return `[{actions: [{generic_key: {descriptor_key: route, descriptor_value: ` + name + `}}]}]`
		}
		s, f := startLimits(t, env, []route{{"/one", limits("one")}, {"/three", limits("three")}, {Prefix: "/free"}})
		f.WantCodes("200 429", "/one")
		f.WantCodes("200 200 200 429", "/three")
		before := s.Metric("headgate_request_duration_seconds_count")
		f.WantCodes(codes(10, 200), "/free")
		if a := f.Get("/free"); a.Header.Get("x-ratelimit-limit") != "" {
			t.Errorf("a route without limits has x-ratelimit headers: %v", a)
		}
		if after := s.Metric("headgate_request_duration_seconds_count"); after != before || before != 6 {
			t.Errorf("headgate was asked %v times before and %v times after the route without limits, want 6 times",
				before, after)
		}
		if a := f.Get("/one"); a.Rule() != "e2e/route_one:one" {
			t.Errorf("the rule is %q", a.Rule())
		}
	})
}

// TestAlgorithmsRefuseInTheirOrder has rules with several limits at once, and looks at
// which of them refuses first.
func TestAlgorithmsRefuseInTheirOrder(t *testing.T) {
	onBackends(t, func(t *testing.T, env environment) {
		s, f := startLimits(t, env, nil)
		for _, c := range []struct{ key, codes, rule string }{
			{"bucket", "200 200 200 429", "e2e/key_bucket:bucket"},
			{"log", "200 200 200 429", "e2e/key_log:log"},
			{"window", "200 200 200 429", "e2e/key_window:window"},
			{"watched", "200 200 200 200 429", "e2e/key_watched:bound"},
		} {
			f.WantCodes(c.codes, "/", "x-key", c.key)
			a := f.Get("/", "x-key", c.key)
			if a.Rule() != c.rule {
				t.Errorf("key=%s is refused by %q, want %q", c.key, a.Rule(), c.rule)
			}
			// A sliding window may have to wait until the window after this one.
			wantSeconds(t, a, "retry-after", 1, 48*3600)
		}
		f.WantCodes(codes(5, 200), "/", "x-key", "mode")
		for rule, most := range map[string]float64{"key_watched": 3, "key_mode": 4} {
			if n := s.Metric("headgate_decisions_total", `rule="`+rule+`"`, `outcome="shadow_over_limit"`); n != most {
				t.Errorf("%v decisions of %s would have been refusals, want %v", n, rule, most)
			}
		}
		wantRefill(t, f)
	})
}

// wantRefill waits as long as a refusal says and is then admitted.
func wantRefill(t *testing.T, f *front) {
	t.Helper()
	f.WantCodes("200", "/", "x-key", "refill")
	refused := 0
	testenv.Eventually(t, 5*time.Second, "get a unit that came back", func() string {
		a := f.Get("/", "x-key", "refill")
		if a.Code == 200 {
			return ""
		}
		refused++
		wantHeader(t, a, "retry-after", "1")
		return a.String()
	})
	if refused == 0 {
		t.Log("the machine was too slow to see a refusal before the bucket had refilled")
	}
}

func TestHitsCountAsSent(t *testing.T) {
	onBackends(t, func(t *testing.T, env environment) {
		hits := `[{hits_addend: {format: "%REQ(X-HITS)%"}, actions: [{request_headers: {header_name: x-key, ` +
			`descriptor_key: key}}]}]`
		_, f := startLimits(t, env, []route{{"/hits", hits}})
		for _, c := range []struct {
			hits            string
			code, remaining int
		}{
			{"3", 200, 7},
			{"0", 200, 7},
			{"8", 429, 7},
			{"7", 200, 0},
			{"1", 429, 0},
		} {
			if a := f.Get("/hits", "x-key", "hits", "x-hits", c.hits); a.Code != c.code || a.Remaining() != c.remaining {
				t.Errorf("%s hits are answered with %v, want %d with %d left", c.hits, a, c.code, c.remaining)
			}
		}
	})
}

// TestRefundGivesHitsBack gives hits back, which Envoy can since 1.38.
func TestRefundGivesHitsBack(t *testing.T) {
	onBackends(t, func(t *testing.T, env environment) {
		if env.envoy < "1.38" {
			t.Skipf("Envoy %s has no is_negative_hits", env.envoy)
		}
		refund := `[{hits_addend: {number: 4, is_negative_hits: true}, actions: [{request_headers: {header_name: x-key, ` +
			`descriptor_key: key}}]}]`
		_, f := startLimits(t, env, []route{{"/refund", refund}})
		f.WantCodes(codes(10, 200)+" 429", "/", "x-key", "refund")
		f.WantCodes("200", "/refund", "x-key", "refund")
		f.WantCodes(codes(4, 200)+" 429", "/", "x-key", "refund")
		// More than was taken cannot be given back.
		f.WantCodes(codes(4, 200), "/refund", "x-key", "refund")
		f.WantCodes(codes(10, 200)+" 429", "/", "x-key", "refund")
	})
}

const usageRules = `
domain: e2e
descriptors:
- {key: key, value: refuse, overflow: refuse, rate_limit: {unit: hour, requests_per_unit: 21}}
- {key: key, value: fixed, rate_limit: {unit: hour, requests_per_unit: 21}}
- {key: key, value: log, limits: [{algorithm: sliding_log, limit: 21, window: 24h}]}
- {key: key, value: sliding, limits: [{algorithm: sliding_window, limit: 21, window: 24h}]}
- {key: key, value: bucket, limits: [{algorithm: token_bucket, rate: 21/day}]}
- {key: key, value: owes, overflow: debt, limits: [{algorithm: token_bucket, rate: 21/day}]}
- {key: other, value: wide, rate_limit: {unit: hour, requests_per_unit: 100}}
`

// TestUsageIsCountedAfterTheResponse has responses that cost ten, which Envoy reports when
// they are over: 21 an hour admit three, and the report that does not fit still counts
// elsewhere.
func TestUsageIsCountedAfterTheResponse(t *testing.T) {
	onBackends(t, func(t *testing.T, env environment) {
		insideHour()
		s := startService(t, "--rules", writeFile(t, "rules.yaml", usageRules), "--backend", env.backend,
			"--overflow", "saturate")
		actions := `actions: [{request_headers: {header_name: x-key, descriptor_key: key}}]`
		other := `actions: [{request_headers: {header_name: x-other, descriptor_key: other}}]`
		usage := `[{hits_addend: {number: 0}, ` + actions + `}, {hits_addend: {number: 0}, ` + other + `}, ` +
			`{hits_addend: {number: 10}, apply_on_stream_done: true, ` + actions +
			`}, {hits_addend: {number: 10}, apply_on_stream_done: true, ` + other + `}]`
		f := startFront(t, env.envoy, setup{Services: []string{s.GRPC}, Routes: []route{{"/usage", usage}}})
		for _, key := range []string{"fixed", "log", "sliding", "bucket", "owes"} {
			for _, want := range []int{200, 200, 200, 429, 429} {
				if a := f.Get("/usage", "x-key", key); a.Code != want {
					t.Errorf("%s: %v, want %d", key, a, want)
				}
				time.Sleep(100 * time.Millisecond) // the report comes after the response
			}
		}
		for range 6 {
			if a := f.Get("/usage", "x-key", "refuse"); a.Code != 200 {
				t.Errorf("without overflow: %v", a)
			}
			time.Sleep(100 * time.Millisecond)
		}
		for range 4 {
			f.Get("/usage", "x-key", "once", "x-other", "wide")
			time.Sleep(100 * time.Millisecond)
		}
		if a := f.Get("/", "x-other", "wide"); a.Remaining() != 59 {
			t.Errorf("of 100 there are %d left after four reports of ten and a request", a.Remaining())
		}
	})
}
