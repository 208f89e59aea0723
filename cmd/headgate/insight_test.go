package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/ratelimit/httpapi"
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

// headgate top, explain, rules and status say who is limited, why, and how near the others are.
func TestWhoIsLimited(t *testing.T) {
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	file := writeRules(t, "domain: shop\ndescriptors:\n- {key: tenant, rate_limit: {unit: minute, unit_multiplier: 5, "+
		"requests_per_unit: 6}}\n")
	r := startServe(t, "--rules", file)
	admin := func(command string, args ...string) (int, string) {
		return headgate(t, append([]string{command, "--addr", "http://" + r.HTTP}, args...)...)
	}
	wants := func(code, want int, out string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if code != want || !strings.Contains(out, part) {
				t.Errorf("exit code %d, want %d; %q is not in\n%s", code, want, part, out)
			}
		}
	}
	code, out := admin("top")
	wants(code, exitOK, out, "nobody was refused in the last 5m", "this replica only")
	code, out = headgate(t, "ask", "shop", "tenant=noisy", "-n", "9", "--addr", r.GRPC)
	wants(code, exitOverLimit, out, "OVER_LIMIT limit=6/5m remaining=0 retry=")
	code, out = admin("top")
	wants(code, exitOK, out, "KEY                RULE         LIMIT  USED  LEFT  REFUSED/5m  RETRY\n",
		"shop|tenant=noisy  shop/tenant  6/5m   6     0     3           ")
	code, out = admin("top", "--near", "--window", "1m")
	wants(code, exitOK, out, "HIGHEST/1m", "100.0%")
	code, out = admin("top", "--format", "json")
	wants(code, exitOK, out, `"domain": "shop"`, `"rule": "shop/tenant"`, `"limit": "6/5m"`, `"key": "shop|tenant=noisy"`,
		`"used": 6`, `"left": 0`, `"refused": 3`, `"retry_after_ms": `)
	code, out = admin("explain", "shop", "tenant=noisy")
	wants(code, exitNo, out, "rule      shop/tenant ("+file+":3)", "answer    refused", "cause limit, retry after ",
		"shop/tenant  6/5m     6     0     3           ")
	code, out = admin("explain", "--key", "shop|tenant=noisy", "--format", "json")
	wants(code, exitNo, out, `"passes": false`)
	code, out = admin("explain", "shop", "tenantt=calm")
	wants(code, exitOK, out, `rule      none: no rule has the key "tenantt" (entry 1); did you mean "tenant"?`,
		"nearly    shop/tenant", "answer    passes")
	code, out = admin("explain", "shop", "tenant=calm", "path=/pay")
	wants(code, exitOK, out, "the rules end after entry 1", "nearly    shop/tenant")
	code, out = admin("explain", "--request-id", "none")
	wants(code, exitError, out, "no refusal of the request none")
	code, out = admin("rules")
	wants(code, exitOK, out, "RULE         LIMIT  POLICY  REFUSED/5m  FULLEST  PLACE\n",
		"shop/tenant  6/5m   -       3           100.0%   "+file+":3\n")
	code, out = headgate(t, "rules", "--rules", file)
	wants(code, exitOK, out, "shop/tenant  6/5m   -       0           -        "+file+":3\n")
	code, out = admin("status")
	wants(code, exitOK, out, "ready, headgate ", "backend memory",
		"33.3% refused, 0.0% by failure policy, last call ", "s ago\n")
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

// TestReplicasTogether: of two services on one store each answers for both, and names them; one whose store is its own
// says so.
func TestReplicasTogether(t *testing.T) {
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	file := writeRules(t, "domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: hour, requests_per_unit: 6}}]\n")
	stores := map[string]func(t *testing.T) string{
		"redis":    func(t *testing.T) string { return testenv.StartRedis(t).URL() },
		"postgres": func(t *testing.T) string { return testenv.StartDatabase(t, testenv.Postgres).URL() },
		"sqlite": func(t *testing.T) string {
			testenv.UseSQLite(t)
			return "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
		},
	}
	for name, start := range stores {
		t.Run(name, func(t *testing.T) {
			backend := start(t)
			a := startServe(t, "--rules", file, "--backend", backend)
			b := startServe(t, "--rules", file, "--backend", backend)
			ask := func(tenant string, n int, addr string) {
				if code, out := headgate(t, "ask", "shop", "tenant="+tenant, "-n", fmt.Sprint(n), "--addr", addr, "--timeout",
					"10s"); code != exitOverLimit {
					t.Fatalf("%d %s", code, out)
				}
			}
			ask("noisy", 10, a.GRPC)
			ask("noisy", 5, b.GRPC)
			ask("there", 8, b.GRPC)
			host, _ := os.Hostname()
			for _, r := range []string{a.HTTP, b.HTTP} {
				testenv.Eventually(t, 30*time.Second, "both replicas are seen at "+r, func() string {
					code, out := headgate(t, "top", "--addr", "http://"+r, "--format", "json")
					var top httpapi.TopAnswer
					if err := json.Unmarshal([]byte(out), &top); code != exitOK || err != nil {
						return out
					}
					refused := map[string]int64{}
					for _, k := range top.Keys {
						refused[k.Key] = *k.Refused
					}
					if len(top.Replicas) != 2 || top.Replicas[0].Name != host || top.Note != "" ||
						refused["shop|tenant=noisy"] != 9 || refused["shop|tenant=there"] != 2 {
						return out
					}
					return ""
				})
			}
			code, out := headgate(t, "top", "--addr", "http://"+a.HTTP)
			if code != exitOK || !strings.Contains(out, "replicas: "+host+", "+host+"\n") {
				t.Errorf("%d %s", code, out)
			}
		})
	}
	alone := startServe(t, "--rules", file)
	if code, out := headgate(t, "top", "--addr", "http://"+alone.HTTP); code != exitOK ||
		!strings.Contains(out, "this replica only: replicas do not share this store") {
		t.Errorf("%d %s", code, out)
	}
}

// Control characters in the error of a store do not reach the terminal either.
func TestStatusOfAStoreThatSaysMuch(t *testing.T) {
	const answer = `{"status":"NOT_READY","parts":[{"name":"backend redis","problem":"ERR \u001b[2J\nrules  ok"}]}`
	var s httpapi.StatusAnswer
	if err := json.Unmarshal([]byte(answer), &s); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := showStatus(&out, s); err != exitCode(exitNo) || strings.Contains(out.String(), "\x1b") ||
		!strings.Contains(out.String(), `FAILING  "ERR \x1b[2J\nrules  ok"`) {
		t.Errorf("%v: %q", err, out.String())
	}
}
