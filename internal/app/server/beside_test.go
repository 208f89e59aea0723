//go:build !rlsonly

package server

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

// awaitPart waits until the status and /readyz?verbose have a line of a part, and the page of metrics has one, too. The
// service is ready meanwhile.
func awaitPart(r *serving.Server, name, problem, metric string) {
	r.Helper()
	line, status := name+": ok\n", fmt.Sprintf(`{"name":%q,"status":"OK"}`, name)
	if problem != "" {
		line, status = name+": "+problem, fmt.Sprintf(`{"name":%q,"status":"FAILING","problem":"%s`, name, problem)
	}
	testenv.Eventually(r, 30*time.Second, "say "+line, func() string {
		_, verbose := r.Get(r.HTTP, "/readyz?verbose")
		_, answer := askAdmin(r, http.MethodGet, "/admin/status", "")
		_, metrics := r.Get(r.Debug, "/metrics")
		if !strings.HasPrefix(verbose, "ready\n") || !strings.Contains(verbose, line) ||
			!strings.Contains(answer, status) || !strings.Contains(metrics, metric+"\n") {
			return verbose + answer
		}
		return ""
	})
}

// TestCandidateThatDoesNotCompile is seen while it is not on trial, also at the start, and not any more when its files
// are as they were.
func TestCandidateThatDoesNotCompile(t *testing.T) {
	candidate := filepath.Join(t.TempDir(), "next.yaml")
	put(t, candidate, "domain: [")
	r := startServe(t, "--candidate", candidate, "--admin-token", adminToken)
	broken := "not all of the last rules are on trial: " + candidate + " has 1 error"
	awaitPart(r, "candidate", broken, "headgate_candidate_up 0")
	for range 2 {
		put(t, candidate, "domain: shop\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
		awaitPart(r, "candidate", "", "headgate_candidate_up 1")
		put(t, candidate, "domain: shop\ndescriptors: [{key: a, rate_limits: 1}]\n")
		awaitPart(r, "candidate", broken, "headgate_candidate_up 0")
	}
}

// TestCaptureThatHasStopped is seen until there is room for it.
func TestCaptureThatHasStopped(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("a file system needs rights: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	r := startServe(t, "--capture", filepath.Join(dir, "capture.jsonl"), "--admin-token", adminToken)
	awaitPart(r, "capture", "", "headgate_capture_stopped 0")
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 256<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func() {
		r.Post(r.HTTP, "/json", "", `{"domain":"example","descriptors":[{"entries":[{"key":"client"}]}]}`)
	}
	ask()
	awaitPart(r, "capture", "has stopped until its file can be written: ", "headgate_capture_stopped 1")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 20*time.Second, "go on", func() string {
		ask()
		if log := r.Log.String(); !strings.Contains(log, "the capture of requests goes on") {
			return log
		}
		return ""
	})
	awaitPart(r, "capture", "", "headgate_capture_stopped 0")
}

// TestRulesThatReserveNothingAreSeen: a rule whose gateway asks otherwise than its reserve says.
func TestRulesThatReserveNothingAreSeen(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	put(t, rules, "domain: llm\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1000}, "+
		"reserve: {amount: 10, match: oldest}}]\n")
	r := startServe(t, "--rules", rules, "--admin-token", adminToken)
	for range 10 {
		r.Post(r.HTTP, "/json", "", `{"domain":"llm","descriptors":[{"entries":[{"key":"user"}]}]}`)
	}
	awaitPart(r, "reservations", "rule llm/user reserves nothing, in 10 calls: ",
		`headgate_reservations_total{domain="llm",event="unasked",rule="user"} 10`)
	if _, text := askAdmin(r, http.MethodGet, "/admin/coverage", ""); !strings.Contains(text,
		`"reserve_nothing":[{"domain":"llm","rule":"user","calls":10,"why":"the descriptors come without hits`) {
		t.Errorf("the coverage is %s", text)
	}
}
