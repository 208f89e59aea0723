package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

const (
	payRules    = "domain: pay\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 0}}\n"
	payBroken   = "domain: pay\ndescriptors:\n- {key: k, rate_limit: {unit: fortnight, requests_per_unit: 0}}\n"
	shopRules   = "domain: shop\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 0}}\n"
	shopOpen    = "domain: shop\ndescriptors:\n- {key: k, rate_limit: {unlimited: true}}\n"
	shopTooMuch = "domain: shop\ndescriptors:\n- {key: k, limits: [{algorithm: sliding_log, limit: 9000000, " +
		"window: 24h}]}\n"
)

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".tmp", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// over reports whether a request of the domain is refused.
func over(r *serving.Server, domain string) bool {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	resp, err := rls.NewRateLimitServiceClient(r.Dial(r.GRPC)).ShouldRateLimit(ctx,
		&rls.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}},
		}})
	if err != nil {
		r.Fatal(err)
	}
	return resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT
}

// settles waits until both domains refuse or admit as wanted.
func settles(r *serving.Server, what string, pay, shop bool) {
	r.Helper()
	testenv.Eventually(r, 20*time.Second, what, func() string {
		if p, s := over(r, "pay"), over(r, "shop"); p != pay || s != shop {
			return "pay is refused: " + map[bool]string{true: "yes", false: "no"}[p] + ", shop: " + map[bool]string{true: "yes",
				false: "no"}[s] + "\n" + r.Log.String()
		}
		return ""
	})
}

// A broken file keeps its own domain from changing, and the log, the metrics and
// /readyz?verbose say so.
func TestBrokenRuleFileStopsItsDomainOnly(t *testing.T) {
	dir := t.TempDir()
	pay, shop := filepath.Join(dir, "pay.yaml"), filepath.Join(dir, "shop.yaml")
	put(t, pay, payRules)
	put(t, shop, shopRules)
	r := startServe(t, "--rules", dir)
	if !over(r, "pay") || !over(r, "shop") {
		t.Fatal("the rules are not in force")
	}
	put(t, pay, payBroken)
	put(t, shop, shopOpen)
	settles(r, "follow the good file while the other is broken", true, false)
	testenv.Eventually(t, 20*time.Second, "tell of the broken file", func() string {
		_, metrics := r.Get(r.Debug, "/metrics")
		if !strings.Contains(metrics, `headgate_rules_file_errors{file="`+pay+`"} 1`) ||
			!strings.Contains(metrics, "headgate_rules_last_load_successful 0") {
			return metrics
		}
		return ""
	})
	code, body := r.Get(r.HTTP, "/readyz?verbose")
	if code != 200 || !strings.Contains(body, "rules: "+pay+" has 1 error; domains as before: pay\n") ||
		!strings.Contains(body, "backend memory: ok\n") {
		t.Errorf("/readyz?verbose: %d %s", code, body)
	}
	if code, body := r.Get(r.HTTP, "/readyz"); code != 200 || body != "ready\n" {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if log := r.Log.String(); !strings.Contains(log, "fortnight") || !strings.Contains(log, "kept=[pay]") {
		t.Errorf("the log:\n%s", log)
	}
	put(t, pay, payRules)
	testenv.Eventually(t, 20*time.Second, "forget the errors of a mended file", func() string {
		_, metrics := r.Get(r.Debug, "/metrics")
		_, ready := r.Get(r.HTTP, "/readyz?verbose")
		if strings.Contains(metrics, "headgate_rules_file_errors{") || !strings.Contains(ready, "rules: ok\n") ||
			!strings.Contains(metrics, "headgate_rules_last_load_successful 1") {
			return ready
		}
		return ""
	})
}

// A replica that is started while a file is broken serves the other domains, if
// the operator wants that.
func TestStartWithBrokenRuleFile(t *testing.T) {
	dir := t.TempDir()
	pay := filepath.Join(dir, "pay.yaml")
	put(t, pay, payBroken)
	put(t, filepath.Join(dir, "shop.yaml"), shopRules)
	if text := startError(t, "--rules", dir); !strings.Contains(text, "fortnight") ||
		!strings.Contains(text, "--rules-errors skip (HEADGATE_RULES_ERRORS=skip)") {
		t.Errorf("by default: %s", text)
	}
	r := startServe(t, "--rules", dir, "--rules-errors", "skip")
	if over(r, "pay") || !over(r, "shop") {
		t.Error("skip does not serve the good domain, or has rules for the other")
	}
	if code, body := r.Get(r.HTTP, "/readyz?verbose"); code != 200 ||
		!strings.Contains(body, "rules: "+pay+" has 1 error; domains that are not limited: pay\n") {
		t.Errorf("/readyz?verbose: %d %s", code, body)
	}
	if _, metrics := r.Get(r.Debug, "/metrics"); !strings.Contains(metrics, `headgate_rules_file_errors{file="`+pay+
		`"} 1`) || !strings.Contains(metrics, `headgate_rules_loads_total{result="error"} 1`) ||
		!strings.Contains(metrics, "headgate_rules_last_load_successful 0") {
		t.Errorf("the metrics do not tell of the broken file")
	}
	if log := r.Log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "not_limited=[pay]") ||
		!strings.Contains(log, "fortnight") {
		t.Errorf("the log:\n%s", log)
	}
	put(t, pay, payRules)
	settles(r, "serve the mended file", true, true)
	put(t, pay, payBroken)
	put(t, filepath.Join(dir, "shop.yaml"), payBroken)
	r.Stop()
	r.Ends(20 * time.Second)
	if text := startError(t, "--rules", dir, "--rules-errors", "skip"); !strings.Contains(text, "fortnight") {
		t.Errorf("with no domain left: %s", text)
	}
}

// A domain whose owner is known is refused while its file has errors: nobody is let through for that, also not while
// the store is away. An owner's mistakes concern nobody else.
func TestDomainOfAnOwnerIsRefusedUntilItsRulesAreGood(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	pay := filepath.Join(a, "pay.yaml")
	put(t, pay, "domain: [")
	put(t, filepath.Join(b, "shop.yaml"), shopOpen)
	redis := testenv.StartRedis(t)
	rules := []string{"--rules", a + "=pay,pay-*", "--rules", b, "--rules-errors", "skip", "--backend", redis.URL()}
	r := startServe(t, rules...)
	redis.Kill()
	if !over(r, "pay") || !over(r, "pay-eu") || over(r, "shop") || over(r, "other") {
		t.Error("not just the domains of the file with errors are refused")
	}
	if _, body := r.Get(r.HTTP, "/readyz?verbose"); !strings.Contains(body, "rules: "+pay+
		" has 1 error; domains that are refused: pay pay-*\n") {
		t.Errorf("/readyz?verbose: %s", body)
	}
	if log := r.Log.String(); !strings.Contains(log, "refused=pay,pay-*") {
		t.Errorf("the log:\n%s", log)
	}
	put(t, pay, shopRules) // not its own domain
	put(t, filepath.Join(a, "other.yaml"), strings.Replace(shopOpen, "shop", "pay", 1))
	settles(r, "serve the owner's other file", false, false)
	if log := r.Log.String(); !strings.Contains(log, `domain \"shop\" is not one of those that files of `+a+
		` may have: pay,pay-*`) {
		t.Errorf("the log:\n%s", log)
	}
	if text := startError(t, "--rules", a+"=pay", "--rules", b+"=shop,p*"); !strings.Contains(text,
		"a domain has one owner") {
		t.Errorf("two owners: %s", text)
	}
	put(t, pay, "domain: [")
	if r = startServe(t, append(rules[:6:6], "--missing-domain", "allow")...); over(r, "pay") {
		t.Error("--missing-domain allow refuses")
	}
}

// Limits that the backend cannot keep are errors of their file, like others.
func TestRulesThatTheBackendCannotKeepStopTheirDomainOnly(t *testing.T) {
	dir := t.TempDir()
	pay, shop := filepath.Join(dir, "pay.yaml"), filepath.Join(dir, "shop.yaml")
	put(t, pay, payRules)
	put(t, shop, shopRules)
	r := startServe(t, "--rules", dir, "--backend", testenv.StartRedis(t).URL())
	put(t, shop, shopTooMuch)
	put(t, pay, strings.Replace(payRules, "requests_per_unit: 0", "requests_per_unit: 100", 1))
	settles(r, "follow the good file", false, true)
}
