package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const failureRules = `
domain: e2e
descriptors:
- {key: key, value: closed, rate_limit: {unit: hour, requests_per_unit: 0}}
- {key: key, value: allow, on_backend_error: allow, rate_limit: {unit: hour, requests_per_unit: 3}}
- {key: key, value: deny, on_backend_error: deny, rate_limit: {unit: hour, requests_per_unit: 1000000}}
- {key: key, value: local, on_backend_error: local, rate_limit: {unit: hour, requests_per_unit: 3}}
- {key: key, value: default, rate_limit: {unit: hour, requests_per_unit: 1000000}}
`

// answersUsed is an answer that only headgate can give: it refuses.
func (f *front) answersUsed() string {
	if a := f.Get("/", "x-key", "closed"); a.Code != 429 {
		return a.String()
	}
	return ""
}

// TestServiceDown is about headgate itself being away. The rule refuses
// everything, so what passes has not been decided by headgate.
func TestServiceDown(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		rules := writeFile(t, "rules.yaml", failureRules)
		s := startService(t, "--rules", rules)
		open := startFront(t, env.envoy, setup{Services: []string{s.GRPC}, FailOpen: true, Timeout: "5s"})
		closed := startFront(t, env.envoy, setup{Services: []string{s.GRPC}})
		open.WantCodes("429", "/", "x-key", "closed")
		closed.WantCodes("429", "/", "x-key", "closed")

		s.Kill()
		for range 5 {
			if a := open.Get("/", "x-key", "closed"); a.Code != 200 || a.Header.Get("x-envoy-ratelimited") != "" ||
				a.Took > 3*time.Second {
				t.Errorf("without headgate the Envoy that fails open says %v after %v", a, a.Took)
			}
			if a := closed.Get("/", "x-key", "closed"); a.Code != 500 || a.Header.Get("x-envoy-ratelimited") != "" ||
				a.Took > 3*time.Second {
				t.Errorf("without headgate the Envoy that fails closed says %v after %v", a, a.Took)
			}
		}

		startService(t, "--rules", rules, "--grpc", s.GRPC)
		testenv.Eventually(t, 10*time.Second, "have headgate used again", open.answersUsed)
		testenv.Eventually(t, 10*time.Second, "have headgate used again", closed.answersUsed)
	})
}

// TestServiceSlow waits 20 ms for calls to headgate, which is Envoy's default.
func TestServiceSlow(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		s := startService(t, "--rules", writeFile(t, "rules.yaml", failureRules))
		proxy := testenv.StartProxy(t, s.GRPC)
		open := startFront(t, env.envoy, setup{Services: []string{proxy.Addr}, FailOpen: true, Timeout: "0.02s"})
		closed := startFront(t, env.envoy, setup{Services: []string{proxy.Addr}, Timeout: "0.02s"})
		// A busy machine may miss 20 ms without any help.
		testenv.Eventually(t, 10*time.Second, "get an answer in 20 ms", open.answersUsed)
		testenv.Eventually(t, 10*time.Second, "get an answer in 20 ms", closed.answersUsed)

		const latency = 2 * time.Second
		proxy.SetLatency(latency)
		for _, c := range []struct {
			f    *front
			code int
		}{{open, 200}, {closed, 500}} {
			a := c.f.Get("/", "x-key", "closed")
			if a.Code != c.code || a.Took < 15*time.Millisecond || a.Took > latency/2 {
				t.Errorf("the answer is %v after %v, want %d after about 20 ms", a, a.Took, c.code)
			}
		}
		if n := open.clusterStat("application", "ratelimit.failure_mode_allowed"); n == 0 {
			t.Error("Envoy has not counted the request that it let through")
		}

		proxy.SetLatency(0)
		testenv.Eventually(t, 10*time.Second, "get an answer in 20 ms again", open.answersUsed)
		testenv.Eventually(t, 10*time.Second, "get an answer in 20 ms again", closed.answersUsed)
	})
}

// TestBackendDown takes Redis away from headgate, by a crash and by a freeze.
// The answers are to come from each rule's policy, and soon enough for Envoy,
// which would say 500 otherwise.
func TestBackendDown(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		insideHour()
		redis := testenv.StartRedis(t)
		s := startService(t, "--rules", writeFile(t, "rules.yaml", failureRules), "--backend", redis.URL(),
			"--on-backend-error", "deny", "--deadline-margin", "200ms")
		f := startFront(t, env.envoy, setup{Services: []string{s.GRPC}, Timeout: "0.6s"})
		f.WantCodes("200", "/up", "x-key", "deny")
		f.WantCodes("200", "/up", "x-key", "default")
		f.WantCodes("200", "/up", "x-key", "local")

		redis.Kill()
		f.wantPolicies(t, "/dead", "200 200 200 429", "degraded=local")
		redis.Restart()
		f.wantBackend(t, s)
		// What was admitted locally is charged to Redis when it is back.
		testenv.Eventually(t, 10*time.Second, "have local decisions settled", func() string {
			if _, body := fetch(t, s.Debug, "/metrics"); !strings.Contains(body, "\nheadgate_local_pending_keys 0\n") {
				return "headgate_local_pending_keys is not 0"
			}
			return ""
		})
		f.WantCodes("429", "/settled", "x-key", "local")

		// What was refused stays refused, and another outage does not begin afresh.
		redis.Pause()
		f.wantPolicies(t, "/frozen", "429 429 429 429", "degraded=-")
		redis.Resume()
		f.wantBackend(t, s)
	})
}

// wantPolicies checks the answers while the backend is away; local is what the
// rule that counts locally has left, and said what the log says of it.
func (f *front) wantPolicies(t *testing.T, path, local, said string) {
	t.Helper()
	f.WantCodes(codes(5, 200), path, "x-key", "allow")
	f.WantAccessLog("path="+path, "code=200", "degraded=allow")
	for _, key := range []string{"deny", "default"} {
		a := f.Get(path, "x-key", key)
		if a.Code != 429 || a.Rule() != "e2e/key_"+key {
			t.Errorf("key=%s is answered with %v, want 429", key, a)
		}
		wantHeader(t, a, "retry-after", "1")
	}
	f.WantAccessLog("path="+path, "code=429", "degraded=deny", "rule=e2e/key_deny")
	f.WantCodes(local, path, "x-key", "local")
	f.WantAccessLog("path="+path, "rule=e2e/key_local", said)
	if n := f.clusterStat("application", "ratelimit.error"); n != 0 {
		t.Errorf("Envoy counts %d errors of headgate, want none", n)
	}
}

// wantBackend waits until the counters decide again, by themselves.
func (f *front) wantBackend(t *testing.T, s *service) {
	t.Helper()
	testenv.Eventually(t, 15*time.Second, "have Redis used again", func() string {
		if a := f.Get("/back", "x-key", "deny"); a.Code != 200 {
			return a.String()
		}
		if code, body := fetch(t, s.HTTP, "/readyz"); code != 200 {
			return body
		}
		return ""
	})
	f.WantCodes(codes(3, 200), "/back", "x-key", "default")
}
