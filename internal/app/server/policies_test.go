//go:build !rlsonly

package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/httpapi"
	"github.com/headgate-rls/headgate/policies/table"
	counters "github.com/headgate-rls/headgate/ratelimit/httpapi"
	"github.com/headgate-rls/headgate/test/testenv"
	"github.com/headgate-rls/headgate/test/webtest"
)

// TestPoliciesByHTTP: a policy that the admin API makes is in force when it answers, and is not any
// more when it is removed.
func TestPoliciesByHTTP(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	r := startServe(t, "--policies", "sqlite:"+filepath.Join(t.TempDir(), "policies.db"))
	client := rls.NewRateLimitServiceClient(r.Dial(r.GRPC))
	ask := func() rls.RateLimitResponse_Code {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		resp, err := client.ShouldRateLimit(ctx, exampleRequest())
		if err != nil {
			t.Fatal(err)
		}
		return resp.OverallCode
	}
	policy := `{"key":"client:alice","type":"SLIDING_WINDOW_COUNTER","capacity":0,"windowSeconds":60}`
	if code, answer, _ := r.Post(r.HTTP, "/admin/policies", "", policy); code != 401 {
		t.Errorf("without the token: %d %v", code, answer)
	}
	if code := ask(); code != rls.RateLimitResponse_OK {
		t.Fatalf("before there is a policy: %v", code)
	}
	if code, answer, _ := r.Post(r.HTTP, "/admin/policies", adminToken, policy); code != 201 ||
		answer["policyKey"] != "client:alice" {
		t.Fatalf("%d %v", code, answer)
	}
	if code := ask(); code != rls.RateLimitResponse_OVER_LIMIT {
		t.Errorf("with a policy that refuses everything: %v", code)
	}
	for key, used := range map[string]bool{"client:bob": true, "*": true, "example/client": true, "user:bob": false,
		"client:a|b": false} {
		body := strings.Replace(policy, "client:alice", key, 1)
		code, answer, _ := r.Post(r.HTTP, "/admin/policies?dryRun=true", adminToken, body)
		after, _ := answer["after"].(map[string]any)
		if warning, _ := after["warning"].(string); code != 200 || (warning == "") != used ||
			!used && !strings.Contains(warning, "no rule in force uses this policy") {
			t.Errorf("%s: %d, warning %q", key, code, warning)
		}
	}
	for _, path := range []string{"/admin/policies/..%2fclient:alice", "/admin/policies/%2e%2e%2fclient:alice"} {
		if code := sendAdmin(r, "DELETE", path, ""); code != 400 {
			t.Errorf("DELETE %s: %d", path, code)
		}
	}
	if code := sendAdmin(r, "DELETE", "/admin/policies/client%3Aalice", ""); code != 204 {
		t.Errorf("DELETE: %d", code)
	}
	if code := ask(); code != rls.RateLimitResponse_OK {
		t.Errorf("after the policy is removed: %v", code)
	}
	if log := r.Log.String(); strings.Count(log, `msg="policy changed"`) != 2 ||
		strings.Count(log, "request_id=req-7") != 1 || strings.Contains(log, adminToken) {
		t.Errorf("the log is\n%s", log)
	}
	if code, answer, _ := r.Post(r.HTTP, "/admin/rate-limit/config", adminToken, "{}"); code != 404 ||
		!strings.Contains(answer["message"].(string), "--slots") {
		t.Errorf("slots, which are off: %d %v", code, answer)
	}
}

// TestPoliciesThatTheStoreCannotKeep: the admin API refuses a limit that the store of the counters cannot keep. One
// that is written into the database is a warning, a metric and a line of /readyz, until it is gone.
func TestPoliciesThatTheStoreCannotKeep(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	dir := t.TempDir()
	policiesURL := "sqlite:" + filepath.Join(dir, "policies.db")
	r := startServe(t, "--policies", policiesURL, "--backend", "sqlite:"+filepath.Join(dir, "counters.db"))
	const huge = `{"key":"client:alice","algorithm":"sliding_log","limit":100001,"window":"1m"}`
	if code, answer, _ := r.Post(r.HTTP, "/admin/policies", adminToken, huge); code != 400 ||
		!strings.Contains(answer["message"].(string), "keeps sliding_log only up to 100000 units, not 100001") {
		t.Errorf("%d %v", code, answer)
	}
	settings := &config.Policies{URL: policiesURL}
	store, err := OpenPolicies(settings, Existing, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	edit := table.Edit{Key: "client:alice",
		Figures: policies.Figures{Algorithm: limit.SlidingLog, Capacity: 100001, Window: 60 * policies.One}}
	for _, unusable := range []int{1, 0} {
		if edit.Remove = unusable == 0; edit.Remove {
			edit.Figures = policies.Figures{}
		}
		if _, err := table.NewEditor(store, nil).Apply(t.Context(), []table.Edit{edit}, "test", false); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, 20*time.Second, "tell of policies that are not in force", func() string {
			_, metrics := r.Get(r.Debug, "/metrics")
			_, ready := r.Get(r.HTTP, "/readyz?verbose")
			if !strings.Contains(metrics, fmt.Sprintf("headgate_policies_unusable %d\n", unusable)) ||
				strings.Contains(ready, "policies: 1 cannot be kept by the store") != (unusable == 1) {
				return ready
			}
			return ""
		})
	}
	if log := r.Log.String(); strings.Count(log, "policies are not in force") != 1 ||
		!strings.Contains(log, "one=client:alice") {
		t.Errorf("the log is\n%s", log)
	}
}

// TestPoliciesOfAReadOnlyDatabase: PostgreSQL that takes no writes is enough to start with. Changes get 503, and the
// status says why until they are possible again.
func TestPoliciesOfAReadOnlyDatabase(t *testing.T) {
	server := testenv.SharedDatabase(t, testenv.Postgres)
	address := server.CreateDatabase("policies")
	name := address[strings.LastIndex(address, "/")+1:]
	name, _, _ = strings.Cut(name, "?")
	startServe(t, "--policies", address).Stop() // which makes the tables
	server.Exec("ALTER DATABASE " + name + " SET default_transaction_read_only = on")
	r := startServe(t, "--policies", address, "--admin-token", adminToken)
	const policy = `{"key":"client:alice","algorithm":"fixed_window","limit":0,"window":"1m"}`
	code, answer := askAdmin(r, http.MethodPost, "/admin/policies", policy)
	if code != http.StatusServiceUnavailable || !strings.Contains(answer, "the database of policies is read-only") {
		t.Errorf("a change: %d %s", code, answer)
	}
	status := func() string { _, text := askAdmin(r, http.MethodGet, "/admin/status", ""); return text }
	if text := status(); !strings.Contains(text, `"status":"READY"`) ||
		!strings.Contains(text, "; none can be changed: the database is read-only") {
		t.Errorf("the status: %s", text)
	}
	server.Exec("ALTER DATABASE " + name + " RESET default_transaction_read_only;\n" +
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'")
	testenv.Eventually(t, 20*time.Second, "take changes again", func() string {
		code, answer := askAdmin(r, http.MethodPost, "/admin/policies", policy)
		if text := status(); code != http.StatusCreated || strings.Contains(text, "read-only") {
			return answer + text
		}
		return ""
	})
}

// TestAdminPathsThatAreOff: without --policies the paths say how to have them.
func TestAdminPathsThatAreOff(t *testing.T) {
	testenv.UseSQLite(t)
	for _, flags := range [][]string{nil, {"--slots", "sqlite::memory:"}} {
		r := startServe(t, flags...)
		if code, _ := r.Get(r.HTTP, "/policies"); code != 404 {
			t.Errorf("%v: the page of policies answers %d", flags, code)
		}
		for _, path := range []string{"/admin/policies", "/admin/policies/a", "/admin/policies-history"} {
			if code, body := r.Get(r.HTTP, path); code != 404 ||
				!strings.Contains(body, "policies are off: run headgate serve with --policies URL") {
				t.Errorf("%v: %s: %d %s", flags, path, code, body)
			}
		}
	}
}

// TestAdminAddressForPolicies: with --admin, the paths are there and nowhere else.
func TestAdminAddressForPolicies(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	r := startServe(t, "--admin", "127.0.0.1:0", "--policies", "sqlite:"+filepath.Join(t.TempDir(), "policies.db"))
	if code := sendAdmin(r, "GET", "/admin/policies", ""); code != 404 {
		t.Errorf("the HTTP address serves admin paths too: %d", code)
	}
	if code, body := r.Get(r.Admin, "/admin/policies"); code != 401 {
		t.Errorf("without the token: %d %s", code, body)
	}
	for addr, want := range map[string]int{r.HTTP: 404, r.Admin: 200} {
		if code, _ := r.Get(addr, "/policies"); code != want {
			t.Errorf("the page of policies: %d, want %d", code, want)
		}
	}
	if code, answer, _ := r.Post(r.Admin, "/admin/policies?dryRun=true", adminToken,
		`{"key":"a","type":"FIXED_WINDOW","capacity":1,"windowSeconds":1}`); code != 200 || answer["dryRun"] != true {
		t.Errorf("with the token: %d %v", code, answer)
	}
}

// TestAdminPathsWithoutPolicies: status, counters and the OpenAPI document are there all the same,
// behind the guard.
func TestAdminPathsWithoutPolicies(t *testing.T) {
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	r := startServe(t)
	for _, path := range []string{"/admin/status", "/admin/metrics", "/admin/metrics/a", "/admin/openapi.json"} {
		if code, body := r.Get(r.HTTP, path); code != 401 {
			t.Errorf("%s without the token: %d %s", path, code, body)
		}
	}
	client := rls.NewRateLimitServiceClient(r.Dial(r.GRPC))
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := client.ShouldRateLimit(ctx, exampleRequest()); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/admin/status", 200}, {"GET", "/admin/metrics", 200}, {"GET", "/admin/metrics/example%7Cclient=alice", 200},
		{"POST", "/admin/reset/example%7Cclient=alice", 204}, {"GET", "/admin/metrics/example%7Cclient=alice", 404},
		{"GET", "/admin/openapi.json", 200}, {"GET", "/admin/policies", 404},
	} {
		if code := sendAdmin(r, c.method, c.path, ""); code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, code, c.want)
		}
	}
}

// TestOneDocumentOfAllAdminPaths: the documents of counters and policies go together.
func TestOneDocumentOfAllAdminPaths(t *testing.T) {
	document, err := web.Document(counters.OpenAPI(), httpapi.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	served := webtest.Send(t, t.Context(), document, "GET", "/admin/openapi.json", "").Is(t, 200)
	whole := webtest.ReadDocument(t, []byte(served.Body))
	whole.ExamplesFit(t)
	parts := 0
	for _, part := range [][]byte{counters.OpenAPI(), httpapi.OpenAPI()} {
		parts += len(webtest.ReadDocument(t, part).Routes(t))
	}
	if all := whole.Routes(t); len(all) != parts {
		t.Errorf("%d of %d operations are in the whole document: %v", len(all), parts, all)
	}
	webtest.Send(t, t.Context(), document, "POST", "/admin/openapi.json", "").Is(t, 405)
	if _, err := web.Document([]byte(`{"a":{"b":1}}`), []byte(`{"a":{"b":2}}`)); err == nil ||
		!strings.Contains(err.Error(), "a.b") {
		t.Errorf("documents that differ: %v", err)
	}
}

// TestMetricsByPolicy: the metrics have what each policy decides: by its key if that was asked for,
// and with the units that are left.
func TestMetricsByPolicy(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	r := startServe(t, "--policies", "sqlite:"+filepath.Join(t.TempDir(), "policies.db"), "--policy-metrics",
		"client:ali*")
	client := rls.NewRateLimitServiceClient(r.Dial(r.GRPC))
	ask := func(times int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for range times {
			if _, err := client.ShouldRateLimit(ctx, exampleRequest()); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(2)
	policy := `{"key":"client:alice","type":"TOKEN_BUCKET","capacity":3,"refillRate":0.000001,"windowSeconds":0}`
	if code, answer, _ := r.Post(r.HTTP, "/admin/policies", adminToken, policy); code != 201 {
		t.Fatalf("%d %v", code, answer)
	}
	ask(4)
	_, text := r.Get(r.Debug, "/metrics")
	for _, line := range []string{
		`headgate_policy_decisions_total{domain="example",outcome="ok",policy="(rule)",rule="client"} 2`,
		`headgate_policy_decisions_total{domain="example",outcome="ok",policy="client:alice",rule="client"} 3`,
		`headgate_policy_decisions_total{domain="example",outcome="over_limit",policy="client:alice",rule="client"} 1`,
		`headgate_policy_remaining_units{domain="example",policy="client:alice",rule="client"} 0`,
		`headgate_policy_limit_units{domain="example",policy="client:alice",rule="client"} 3`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}
