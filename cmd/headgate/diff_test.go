//go:build !rlsonly

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

// From rules on trial to their promotion: live answers stay, the comparison is there, broken rules on trial keep the
// former ones, and diff says no.
func TestCandidate(t *testing.T) {
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	for name, url := range map[string]string{"memory": "memory://", "redis": "redis://" + testenv.StartRedis(t).Addr} {
		t.Run(name, func(t *testing.T) { candidateStory(t, url) })
	}
}

func candidateStory(t *testing.T, url string) {
	limited := func(n int) string {
		return fmt.Sprintf("domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: day, requests_per_unit: %d}}]\n", n)
	}
	live, next := writeRules(t, limited(5)), t.TempDir()
	put := func(text string) {
		t.Helper()
		// As editors and kubelets do: a name that is there is always whole.
		file := filepath.Join(next, "rules.yaml")
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put(limited(0) + "x")
	s := startServe(t, "--rules", live, "--candidate", next, "--backend", url)
	diff := func(args ...string) (int, string) {
		return headgate(t, append([]string{"diff", "--addr", "http://" + s.HTTP}, args...)...)
	}
	await := func(want string) {
		t.Helper()
		testenv.Eventually(t, 20*time.Second, "say "+want, func() string {
			if _, out := diff(); !strings.Contains(out, want) {
				return out
			}
			return ""
		})
	}
	if code, out := diff(); code != exitError || !strings.Contains(out, "could not be put on trial") {
		t.Errorf("broken rules: %d\n%s", code, out)
	}
	put(limited(2))
	await("0 requests since")
	if code, out := diff("--fail-on", "newly-refused=0"); code != exitError || !strings.Contains(out,
		"nothing was decided") {
		t.Errorf("before: %d\n%s", code, out)
	}
	if code, out := headgate(t, "ask", "--addr", s.GRPC, "shop", "tenant=a", "-n", "7"); code != exitOverLimit ||
		strings.Count(out, "OK  ") != 5 {
		t.Fatalf("ask exits with %d:\n%s", code, out)
	}
	await("7 requests since")
	code, out := diff("--fail-on", "newly-refused=0.1%")
	if code != exitNo || !strings.Contains(out, "refused 2, those on trial 5: 3 newly refused") ||
		!strings.Contains(out, "shop/tenant  2             5         +3") || !strings.Contains(out, "shop|tenant=a") {
		t.Errorf("diff exits with %d:\n%s", code, out)
	}
	if code, out := diff("--fail-on", "newly-refused=50%", "--format", "json"); code != exitOK ||
		!strings.Contains(out, `"newly_refused": 3`) {
		t.Errorf("diff exits with %d:\n%s", code, out)
	}
	want := `headgate_candidate_decisions_total{candidate="over_limit",domain="shop",live="ok",rule="shop/tenant"} 3`
	if _, text := s.Get(s.Debug, "/metrics"); !strings.Contains(text, want) {
		t.Errorf("no %s in\n%s", want, text)
	}
	if url == "memory://" {
		trialPage(t, s)
	}
	put("domain: [")
	await("could not be put on trial")
	if code, out := diff(); code != exitError || !strings.Contains(out, "7 requests since") {
		t.Errorf("broken rules: %d\n%s", code, out)
	}
	if err := os.Remove(filepath.Join(next, "rules.yaml")); err != nil { // they have been promoted
		t.Fatal(err)
	}
	await("no rules are on trial")
	for _, bad := range [][]string{{"--since", "2d"}, {"--fail-on", "x"}, {"--top", "-1"}, {"--format", "xml"},
		{"--watch", "--fail-on", "newly-refused=0"}, {"--every", "1ms"}} {
		if code, out := diff(bad...); code != exitProblems || !strings.Contains(out, bad[0]) {
			t.Errorf("%v: %d\n%s", bad, code, out)
		}
	}
}

// trialPage looks at the page /limits.
func trialPage(t *testing.T, s *serving.Server) {
	testenv.Require(t, testenv.Chromium)
	p := testenv.StartChromium(t).NewPage()
	p.Viewport(360, 800, true)
	p.Navigate("http://" + s.HTTP + "/limits#token=" + adminToken)
	p.Wait(`!document.querySelector("#trial").hidden`)
	p.Wait(`document.querySelector("#trial-sum").textContent.startsWith("+3/min on trial: of 7 requests")`)
	p.Wait(`document.querySelector("#trial-rules").textContent.includes("shop/tenant")`)
	p.Wait(`document.querySelector("#trial-rules").textContent.includes("+3")`)
	wide := p.Eval(`document.documentElement.scrollWidth - document.documentElement.clientWidth`)
	if fmt.Sprint(wide) != "0" {
		t.Errorf("the page is %v pixels too wide", wide)
	}
}

func TestDiffWithoutCandidate(t *testing.T) {
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	s := startServe(t, "--example")
	code, out := headgate(t, "diff", "--addr", "http://"+s.HTTP)
	if code != exitError || !strings.Contains(out, "serve with --candidate") {
		t.Errorf("%d\n%s", code, out)
	}
	if code, out := headgate(t, "serve", "--example", "--candidate", t.TempDir(), "--candidate-sample",
		"2"); code == exitOK ||
		!strings.Contains(out, "--candidate-sample") {
		t.Errorf("%d\n%s", code, out)
	}
}
