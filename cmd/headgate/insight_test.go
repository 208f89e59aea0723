package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// headgate coverage shows which descriptors no rule matches, and headgate reloads what changed.
func TestCoverageAndReloads(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	const rules = "domain: shop\ndescriptors:\n- key: tenant\n  policy: user:{tenant}\n" +
		"  rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 600}\n"
	file := writeRules(t, rules)
	database := "sqlite:" + filepath.Join(t.TempDir(), "policies.db")
	r := startServe(t, "--rules", file, "--policies", database)
	admin := []string{"--addr", "http://" + r.HTTP}
	shows := func(command string, want ...string) {
		t.Helper()
		testenv.Eventually(t, 20*time.Second, "show "+strings.Join(want, " and "), func() string {
			code, out := headgate(t, append([]string{command}, admin...)...)
			for _, text := range want {
				if code != 0 || !strings.Contains(out, text) {
					return out
				}
			}
			return ""
		})
	}
	shows("coverage", "nothing was asked")
	shows("reloads", "nothing has changed")
	for _, entry := range []string{"tenant=acme", "tenantt=acme"} {
		if code, out := headgate(t, "ask", "shop", entry, "--addr", r.GRPC); code != 0 {
			t.Fatal(out)
		}
	}
	shows("coverage", "DOMAIN", "shop    tenant   1        0 ", "shop    tenantt  0        1 ",
		`no rule has the key "tenantt" (entry 1); did you mean "tenant"?`)
	if code, out := headgate(t, append([]string{"coverage", "--format", "json"}, admin...)...); code != 0 ||
		!strings.Contains(out, `"unmatched": 1`) {
		t.Errorf("%d %s", code, out)
	}
	_, metrics := r.Get(r.Debug, "/metrics")
	for _, line := range []string{`headgate_descriptors_unmatched_total{domain="shop"} 1`,
		`headgate_descriptors_matched_total{domain="shop"} 1`} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %s in\n%s", line, metrics)
		}
	}
	if err := os.WriteFile(file, []byte(strings.Replace(rules, "600", "6", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	shows("reloads", " rules\n  shop/tenant 600/5m -> 6/5m\n")
	if code, out := headgate(t, "policy", "set", "user:acme", "--algorithm", "fixed_window", "--limit", "1", "--window",
		"1h", "--policies", database); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	shows("reloads", " policies\n  + policy user:acme fixed_window limit=1 window=1h\n", " rules\n")
	if code, out := headgate(t, "coverage", "--addr", "http://127.0.0.1:1"); code != exitError ||
		!strings.Contains(out, "is the service running") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, append([]string{"coverage", "--format", "yaml"}, admin...)...); code != exitError {
		t.Errorf("%d %s", code, out)
	}
}
