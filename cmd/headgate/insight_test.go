package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/ratelimit/httpapi"
	"github.com/headgate-rls/headgate/test/testenv"
)

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
	const window = 5 * time.Minute
	if left := time.Until(time.Now().Truncate(window).Add(window)); left < 20*time.Second {
		time.Sleep(left) // what is counted must not be forgotten before all is asked
	}
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
	code, out = headgate(t, "explain", "shop|tenant=noisy", "--addr", r.HTTP) // as top prints it, and without a scheme
	wants(code, exitNo, out, "answer    refused", "Z by shop/tenant, cause limit")
	code, out = admin("explain", "shop", "tenantt=calm")
	wants(code, exitOK, out, `rule      none: no rule has the key "tenantt" (entry 1); did you mean "tenant"?`,
		"nearly    shop/tenant",
		"(nearly: one entry, a KEY=VALUE pair, differs, is missing or is too many)", "answer    passes")
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

// TestReplicasTogether: of two services on one store each answers for both, and names them; one whose store is its own
// says so.
func TestReplicasTogether(t *testing.T) {
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	file := writeRules(t, "domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: hour, requests_per_unit: 6}}]\n")
	for name, start := range sharedStores {
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
