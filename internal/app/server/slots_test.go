package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const adminToken = "0123456789abcdef0123456789abcdef"

// The quick start, verbatim, and what it promises: the same answer for ever,
// also after a restart.
func TestServeSlots(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	url := "sqlite:" + filepath.Join(t.TempDir(), "slots.db")
	r := startServe(t, "--slots", url)
	if code, answer, _ := r.Post(r.HTTP, "/api/v1/slots", "",
		`{"eventId":"pay-123","requestedTime":"2025-06-01T12:00:00Z"}`); code != 404 {
		t.Errorf("before there is a config: %d %v", code, answer)
	}
	config := `{"configName": "default", "maxPerWindow": 100, "windowSize": "PT4S"}`
	if code, answer, _ := r.Post(r.HTTP, "/admin/rate-limit/config", "", config); code != 401 {
		t.Errorf("without a token: %d %v", code, answer)
	}
	if code, answer, _ := r.Post(r.HTTP, "/admin/rate-limit/config", adminToken, config); code != 200 ||
		answer["maxPerWindow"] != 100.0 {
		t.Fatalf("%d %v", code, answer)
	}
	first := r.Slot("pay-123")
	if first["eventId"] != "pay-123" || first["delayMs"].(float64) >= 4000 || len(first) != 3 {
		t.Errorf("%v", first)
	}
	if code, body := r.Get(r.Debug, "/metrics"); code != 200 ||
		!strings.Contains(body, `headgate_slots_request_duration_seconds_count{outcome="new"} 1`) {
		t.Errorf("no metrics of slots:\n%s", body)
	}
	testenv.Eventually(t, 10*time.Second, "look for slots past their retention", func() string {
		_, body := r.Get(r.Debug, "/metrics")
		if !strings.Contains(body, `headgate_slots_background_runs_total{result="ok",work="retention"} 1`) {
			return body
		}
		return ""
	})
	if code, body := r.Get(r.HTTP, "/slots"); code != 200 || !strings.Contains(body, "<html") {
		t.Errorf("the page: %d %.100s", code, body)
	}
	if code, body := r.Get(r.HTTP, "/readyz"); code != 200 {
		t.Errorf("not ready: %s", body)
	}
	if strings.Contains(r.Log.String(), adminToken) {
		t.Error("the token is in the log")
	}
	r.Stop()
	r.Ends(20 * time.Second)

	again := startServe(t, "--slots", url)
	if second := again.Slot("pay-123"); second["scheduledTime"] != first["scheduledTime"] {
		t.Errorf("after a restart %v, before %v", second, first)
	}
}

// TestSlotsWithoutRules: a service with slots needs no rules, and a request for a limit gets an error.
func TestSlotsWithoutRules(t *testing.T) {
	r := startServe(t, "--slots", "sqlite::memory:", "--slots-seed", "100/PT4S", "--example=false",
		"--xds-health", "rules")
	r.Slot("pay-123")
	testenv.Eventually(t, 10*time.Second, "be healthy: there are no rules to wait for", func() string {
		if code, body := r.Get(r.HTTP, "/healthcheck"); code != 200 {
			return fmt.Sprint(code, " ", body)
		}
		return ""
	})
	code, body := r.Get(r.HTTP, "/readyz?verbose")
	if code != 200 || !strings.Contains(body, "rules: none: only slots are served") {
		t.Errorf("%d %s", code, body)
	}
	if !strings.Contains(r.Log.String(), `level=WARN msg="no rules: only slots are served`) {
		t.Errorf("no warning:\n%s", r.Log)
	}
	resp, err := http.Post("http://"+r.HTTP+"/json", "application/json",
		strings.NewReader(`{"domain": "example", "descriptors": [{"entries": [{"key": "client"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a limit without rules: %s", resp.Status)
	}
	if errText := startError(t, "--slots", ""); !strings.Contains(errText, "no rules to serve") {
		t.Error(errText)
	}
}

func TestSlotsSeed(t *testing.T) {
	testenv.UseSQLite(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "slots.db")
	r := startServe(t, "--slots", url, "--slots-seed", "1/PT2S")
	r.Slot("a")
	if b := r.Slot("b"); b["delayMs"].(float64) < 2000 {
		t.Errorf("the seeded config holds one event in 2 s, and the second is at %v", b)
	}
	r.Stop()
	r.Ends(20 * time.Second)
	// A config that is there is not changed.
	r = startServe(t, "--slots", url, "--slots-seed", "100/PT4S")
	if c := r.Slot("c"); c["delayMs"].(float64) < 4000 {
		t.Errorf("the seed replaced the config: %v", c)
	}
}

// Without --slots nothing of it is there, and bad settings refuse to start.
func TestSlotSettings(t *testing.T) {
	r := startServe(t)
	if code, _ := r.Get(r.HTTP, "/slots"); code != 404 {
		t.Errorf("slots are served without --slots: %d", code)
	}
	for _, c := range []struct{ args, want string }{
		{"--slots nonsense", "--slots"},
		{"--slots mongodb://localhost", "--slots"},
		{"--slots oracle://u:p@localhost/X", "-tags godror"},
		{"--slots sqlite:" + filepath.Join(t.TempDir(), "none", "x.db"), "none"},
		{"--slots sqlite::memory: --slots-engine procedure", "procedure"},
		{"--slots sqlite::memory: --slots-seed 4", "--slots-seed"},
		{"--slots sqlite::memory: --admin-token short", "--admin-token"},
		{"--admin-tls-cert x --admin :1", "--admin-tls-cert"},
		{"--slots-keep 1h", "--slots-keep"},
	} {
		if text := startError(t, append([]string{"--example"}, strings.Fields(c.args)...)...); !strings.Contains(
			text, c.want) {
			t.Errorf("%s: %s, want %q", c.args, text, c.want)
		}
	}
}

// The database is away at the start and comes later: limits work meanwhile,
// slots answer 503, and then they work without a restart.
func TestSlotsWaitForTheDatabase(t *testing.T) {
	pg := testenv.StartDatabase(t, testenv.Postgres)
	pg.Kill()
	r := startServe(t, "--slots", pg.URL(), "--slots-seed", "10/PT4S", "--slots-timeout", "2s")
	code, answer, header := r.Post(r.HTTP, "/api/v1/slots", "", `{"eventId":"e","requestedTime":"2025-06-01T12:00:00Z"}`)
	if code != 503 || header.Get("Retry-After") == "" {
		t.Errorf("without the database: %d %v %v", code, answer, header)
	}
	if code, body := r.Get(r.HTTP, "/readyz"); code != 503 || !strings.Contains(body, "slots") {
		t.Errorf("without the database: %d %s", code, body)
	}
	if code, body := r.Get(r.HTTP, "/healthcheck"); code != 200 {
		t.Errorf("healthy: %d %s", code, body)
	}
	pg.Restart()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if code, _ := r.Get(r.HTTP, "/readyz"); code == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready although the database is back:\n%s", r.Log)
		}
	}
	r.Slot("e")
	if strings.Contains(r.Log.String(), "apppw") {
		t.Error("the password of the database is in the log")
	}
}

// The admin paths on a listener of their own, for clients with certificates.
func TestAdminListener(t *testing.T) {
	testenv.UseSQLite(t)
	certs := testenv.TestCerts(t)
	r := startServe(t, "--slots", "sqlite::memory:", "--admin", "127.0.0.1:0",
		"--admin-tls-cert", certs.Server.CertFile, "--admin-tls-key", certs.Server.KeyFile, "--admin-client-ca", certs.CAFile)
	if code, _ := r.Get(r.HTTP, "/admin/rate-limit/config"); code != 404 {
		t.Errorf("the admin paths are on the other listener too: %d", code)
	}
	for _, with := range []bool{true, false} {
		var own *testenv.Pair
		if with {
			own = &certs.Client
		}
		client := http.Client{Timeout: 10 * time.Second,
			Transport: &http.Transport{TLSClientConfig: clientTLS(t, certs, own)}}
		resp, err := client.Post("https://"+r.Admin+"/admin/rate-limit/config", "application/json",
			strings.NewReader(`{"configName":"default","maxPerWindow":1,"windowSize":"PT4S"}`))
		if (err == nil) != with {
			t.Errorf("with a certificate %v: %v", with, err)
		}
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("with a certificate: %s", resp.Status)
			}
		}
		client.CloseIdleConnections()
	}
}
