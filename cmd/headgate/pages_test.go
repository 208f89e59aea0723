//go:build !rlsonly

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
	shows("coverage", "each line is a shape: the keys of a descriptor's entries", "DOMAIN",
		"shop    tenant   1        0 ", "shop    tenantt  0        1 ",
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
	shows("reloads", "Z rules\n  shop/tenant 600/5m -> 6/5m\n")
	if code, out := headgate(t, "policy", "set", "user:acme", "--algorithm", "fixed_window", "--limit", "1", "--window",
		"1h", "--policies", database); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	shows("reloads", " policies\n  + policy user:acme 1/1h\n", " rules\n")
	if code, out := headgate(t, "coverage", "--addr", "http://127.0.0.1:1"); code != exitError ||
		!strings.Contains(out, "is the service running") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, append([]string{"coverage", "--format", "yaml"}, admin...)...); code != exitProblems {
		t.Errorf("%d %s", code, out)
	}
	// What clients send forges no lines, and does nothing to the terminal.
	if code, out := headgate(t, "ask", "shop", "a\x1b[2J\nforged=1", "tenant=b", "--addr", r.GRPC); code != 0 {
		t.Fatal(out)
	}
	code, plain := headgate(t, append([]string{"coverage"}, admin...)...)
	if code != 0 || strings.ContainsAny(plain, "\x1b\r") || strings.Contains(plain, "\nforged") {
		t.Errorf("%d %q", code, plain)
	}
	_, plain = headgate(t, append([]string{"explain", "shop", "tenant=b\x1b[2J\nforged"}, admin...)...)
	if strings.Contains(plain, "\x1b") || strings.Contains(plain, "\nforged") || !strings.Contains(plain, "looked for: ") {
		t.Errorf("%q", plain)
	}
}

// TestPagesOfARunningService: all four pages are there and lead to each other, and on /limits one changes the limit
// of a key that is refused.
func TestPagesOfARunningService(t *testing.T) {
	testenv.UseSQLite(t)
	testenv.Require(t, testenv.Chromium)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	database := "sqlite:" + filepath.Join(t.TempDir(), "headgate.db")
	// As in --example, but the limit's window does not end before the page shows that a key is refused.
	rules := writeRules(t, "domain: example\ndescriptors:\n- {key: client, policy: \"client:{client}\", "+
		"rate_limit: {unit: year, requests_per_unit: 5}}\n")
	r := startServe(t, "--rules", rules, "--policies", database, "--slots", database, "--slots-seed", "100/PT4S")
	for _, path := range []string{"/", "/limits", "/policies", "/slots"} {
		code, page := r.Get(r.HTTP, path)
		for _, link := range []string{`<a href="/"`, `<a href="/limits"`, `<a href="/policies"`, `<a href="/slots"`} {
			if code != 200 || !strings.Contains(page, link) {
				t.Errorf("%s: %d, without the link %s", path, code, link)
			}
		}
	}
	ask := func() int {
		code, _ := headgate(t, "ask", "example", "client=alice", "-n", "7", "--addr", r.GRPC)
		return code
	}
	if ask() != exitOverLimit {
		t.Fatal("seven requests pass")
	}
	p := testenv.StartChromium(t).NewPage()
	p.Viewport(1280, 900, false)
	p.Navigate("http://" + r.HTTP + "/limits#token=" + adminToken)
	p.Wait(`document.querySelector("#refused-keys button")?.textContent === "example|client=alice"`)
	p.Eval(`document.querySelector("#refused-keys button").click()`)
	p.Wait(`document.querySelector("#verdict").textContent.includes("refused now")`)
	p.Wait(`!document.querySelector("#change").hidden && document.querySelector("#first").value === "5"`)
	p.Eval(`document.querySelector("#first").value = "50"; document.querySelector("#change").requestSubmit()`)
	p.Wait(`document.querySelector("#done").textContent === "The policy client:alice is set."`)
	p.Wait(`document.querySelector("#one-policy").textContent.startsWith("The policy client:alice holds")`)
	p.Wait(`document.querySelector("#past").textContent.includes("by admin-token: none → fixed_window 50/8760h")`)
	p.Wait(`document.querySelector("#verdict").textContent.includes("would pass")`)
	if ask() != exitOK {
		t.Error("the new limit is not in force")
	}
	p.Eval(`document.querySelector("#first").value = "1"; document.querySelector("#change").requestSubmit()`)
	p.Wait(`document.querySelector("#past").textContent.includes("fixed_window 50/8760h → fixed_window 1/8760h")`)
	p.Wait(`document.querySelector("#verdict").textContent.includes("refused now")`)
	p.Eval(`document.querySelector("#first").value = "-1"; document.querySelector("#change").requestSubmit()`)
	p.Wait(`document.querySelector("#done").textContent.includes("limit")`)
}
