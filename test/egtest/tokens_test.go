//go:build egtest

package egtest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/llmtest"
)

// tokenBudget is a case with a budget of tokens, as Envoy AI Gateway's users write it. Envoy Gateway fails on a number
// as the cost when it reads files, so the 0 is metadata, too.
func tokenBudget(t *testing.T) scenario {
	t.Helper()
	lua, err := os.ReadFile(filepath.Join("..", "..", "internal", "app", "envoyconf", "llm.lua"))
	if err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer(`set("llm", key,`, `set("io.envoy.ai_gateway", "llm_total_token",`,
		`set(handle, "estimate", n)`, `local unused = n`, "function envoy_on_request(handle)\n",
		"function envoy_on_request(handle)\n  handle:streamInfo():dynamicMetadata():set(\"io.test\", \"zero\", 0)\n").
		Replace(string(lua))
	return scenario{name: "a budget of tokens", host: "llm", lua: script,
		rules: "- clientSelectors: [{headers: [{name: x-user, type: Distinct}]}]\n" +
			"  limit: {requests: 1000000, unit: Hour}\n" +
			"  cost:\n    request: {from: Metadata, metadata: {namespace: io.test, key: zero}}\n" +
			"    response: {from: Metadata, metadata: {namespace: io.envoy.ai_gateway, key: llm_total_token}}"}
}

// burst sends calls at once and returns how many the model answered.
func (l *lab) burst(calls int, call llmtest.Call) (passed, refused int) {
	l.t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	client := http.Client{Timeout: time.Minute}
	for range calls {
		all.Go(func() {
			req, err := call.Request(l.t.Context(), fmt.Sprintf("http://127.0.0.1:%d", gatewayPort))
			if err != nil {
				l.t.Error(err)
				return
			}
			req.Host = "llm.example.com"
			resp, err := client.Do(req)
			if err != nil {
				l.t.Error(err)
				return
			}
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests:
				l.t.Errorf("%d %v", resp.StatusCode, err)
			case resp.StatusCode == http.StatusOK:
				passed++
			default:
				refused++
			}
		})
	}
	all.Wait()
	return passed, refused
}

// Two lines of an overlay make a budget of tokens hold, with a configuration of Envoy that a real Envoy Gateway writes.
// Without them all calls of a burst pass.
func TestEnvoyGatewayWithTokens(t *testing.T) {
	for name, reserve := range map[string]string{"without": "on_backend_error: deny",
		"with reservations": "reserve: {amount: auto, default: 16384, max: 100000, match: oldest}"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "overlay.yaml")
			cases := []scenario{tokenBudget(t)}
			l := &lab{t: t}
			l.write(file, "overlay:\n- {domain: default/eg/*, rule: '*/llm/*.rule-0-match-*', "+reserve+"}\n")
			l = start(t, program, cases, "HEADGATE_XDS_OVERLAY="+file)
			call := llmtest.Call{User: "first", Stream: true, Plan: llmtest.Plan{Output: 100_000, Takes: time.Second}}
			passed, _ := l.burst(200, call)
			call.User = "second" // of whom one call says what others will cost
			once, _ := l.burst(1, call)
			time.Sleep(2 * time.Second) // the last reports
			again, _ := l.burst(200, call)
			again += once
			spent, _ := l.model.Spent("second", time.Time{})
			t.Logf("%d passed, then %d, which spent %d", passed, again, spent)
			if name == "without" {
				if passed != 200 || again != 201 {
					t.Errorf("without reservations %d and %d pass; this test looks at the wrong thing", passed, again)
				}
				return
			}
			if passed == 0 || passed > 1_000_000/16_384 {
				t.Errorf("%d passed of the first burst, want at most %d", passed, 1_000_000/16_384)
			}
			if again == 0 || spent > 1_050_000 {
				t.Errorf("the second burst spent %d, want at most 1,050,000", spent)
			}
		})
	}
}
