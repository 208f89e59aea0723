package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/testenv"
)

const adminToken = "0123456789abcdef0123456789abcdef"

// post sends JSON and returns the status and what is in the answer.
func (r *running) post(addr, path, token, body string) (int, map[string]any, http.Header) {
	r.Helper()
	req, err := http.NewRequest("POST", "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: 20 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	var answer map[string]any
	if len(data) > 0 {
		if err := json.Unmarshal(data, &answer); err != nil {
			r.Fatalf("%s: %v", data, err)
		}
	}
	return resp.StatusCode, answer, resp.Header
}

func (r *running) slot(event string) map[string]any {
	r.Helper()
	code, answer, _ := r.post(r.http, "/api/v1/slots", "", `{"eventId":"`+event+`","configName":"default","requestedTime":"2025-06-01T12:00:00Z"}`)
	if code != 200 {
		r.Fatalf("%d %v\n%s", code, answer, r.log)
	}
	return answer
}

// headgate runs a command and returns its exit code and what it printed.
func headgate(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(""), &out, &out)
	return code, out.String()
}

// The quick start, verbatim, and what it promises: the same answer for ever,
// also after a restart.
func TestServeSlots(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	url := "sqlite:" + filepath.Join(t.TempDir(), "slots.db")
	r := startServe(t, "--slots", url)
	if code, answer, _ := r.post(r.http, "/api/v1/slots", "", `{"eventId":"pay-123","requestedTime":"2025-06-01T12:00:00Z"}`); code != 404 {
		t.Errorf("before there is a config: %d %v", code, answer)
	}
	config := `{"configName": "default", "maxPerWindow": 100, "windowSize": "PT4S"}`
	if code, answer, _ := r.post(r.http, "/admin/rate-limit/config", "", config); code != 401 {
		t.Errorf("without a token: %d %v", code, answer)
	}
	if code, answer, _ := r.post(r.http, "/admin/rate-limit/config", adminToken, config); code != 200 || answer["maxPerWindow"] != 100.0 {
		t.Fatalf("%d %v", code, answer)
	}
	first := r.slot("pay-123")
	if first["eventId"] != "pay-123" || first["delayMs"].(float64) >= 4000 || len(first) != 3 {
		t.Errorf("%v", first)
	}
	if code, body := r.get(r.debug, "/metrics"); code != 200 || !strings.Contains(body, `headgate_slots_request_duration_seconds_count{outcome="new"} 1`) {
		t.Errorf("no metrics of slots:\n%s", body)
	}
	if code, body := r.get(r.http, "/slots"); code != 200 || !strings.Contains(body, "<html") {
		t.Errorf("the page: %d %.100s", code, body)
	}
	if code, body := r.get(r.http, "/readyz"); code != 200 {
		t.Errorf("not ready: %s", body)
	}
	if strings.Contains(r.log.String(), adminToken) {
		t.Error("the token is in the log")
	}
	code, out := headgate(t, "slot", "pay-123", "--addr", "http://"+r.http)
	if want := fmt.Sprintf("pay-123 scheduled=%s delay=", first["scheduledTime"]); code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "replayed") {
		t.Errorf("headgate slot: %d %s, want %s", code, out, want)
	}
	r.stop()
	r.exits(0, 20*time.Second)

	again := startServe(t, "--slots", url)
	if second := again.slot("pay-123"); second["scheduledTime"] != first["scheduledTime"] {
		t.Errorf("after a restart %v, before %v", second, first)
	}
}

func TestSlotsSeed(t *testing.T) {
	testenv.UseSQLite(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "slots.db")
	r := startServe(t, "--slots", url, "--slots-seed", "1/PT2S")
	r.slot("a")
	if b := r.slot("b"); b["delayMs"].(float64) < 2000 {
		t.Errorf("the seeded config holds one event in 2 s, and the second is at %v", b)
	}
	r.stop()
	r.exits(0, 20*time.Second)
	// A config that is there is not changed.
	r = startServe(t, "--slots", url, "--slots-seed", "100/PT4S")
	if c := r.slot("c"); c["delayMs"].(float64) < 4000 {
		t.Errorf("the seed replaced the config: %v", c)
	}
}

// Without --slots nothing of it is there, and bad settings refuse to start.
func TestSlotSettings(t *testing.T) {
	r := startServe(t)
	if code, _ := r.get(r.http, "/slots"); code != 404 {
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
		code, out := headgate(t, append([]string{"serve", "--example", "--grpc", "127.0.0.1:0", "--http", "", "--services", "", "--debug", ""}, strings.Fields(c.args)...)...)
		if code != exitError || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d %s, want %q", c.args, code, out, c.want)
		}
	}
}

// The database is away at the start and comes later: limits work meanwhile,
// slots answer 503, and then they work without a restart.
func TestSlotsWaitForTheDatabase(t *testing.T) {
	pg := testenv.StartDatabase(t, testenv.Postgres)
	pg.Kill()
	r := startServe(t, "--slots", pg.URL(), "--slots-seed", "10/PT4S", "--slots-timeout", "2s")
	code, answer, header := r.post(r.http, "/api/v1/slots", "", `{"eventId":"e","requestedTime":"2025-06-01T12:00:00Z"}`)
	if code != 503 || header.Get("Retry-After") == "" {
		t.Errorf("without the database: %d %v %v", code, answer, header)
	}
	if code, body := r.get(r.http, "/readyz"); code != 503 || !strings.Contains(body, "slots") {
		t.Errorf("without the database: %d %s", code, body)
	}
	if code, body := r.get(r.http, "/healthcheck"); code != 200 {
		t.Errorf("healthy: %d %s", code, body)
	}
	pg.Restart()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if code, _ := r.get(r.http, "/readyz"); code == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready although the database is back:\n%s", r.log)
		}
	}
	r.slot("e")
	if strings.Contains(r.log.String(), "apppw") {
		t.Error("the password of the database is in the log")
	}
}

// The admin paths on a listener of their own, for clients with certificates.
func TestAdminListener(t *testing.T) {
	testenv.UseSQLite(t)
	certs := testenv.TestCerts(t)
	r := startServe(t, "--slots", "sqlite::memory:", "--admin", "127.0.0.1:0",
		"--admin-tls-cert", certs.Server.CertFile, "--admin-tls-key", certs.Server.KeyFile, "--admin-client-ca", certs.CAFile)
	if code, _ := r.get(r.http, "/admin/rate-limit/config"); code != 404 {
		t.Errorf("the admin paths are on the other listener too: %d", code)
	}
	authority, err := os.ReadFile(certs.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	own, err := tls.LoadX509KeyPair(certs.Client.CertFile, certs.Client.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range []bool{true, false} {
		conf := &tls.Config{RootCAs: roots, ServerName: "localhost"}
		if with {
			conf.Certificates = []tls.Certificate{own}
		}
		client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: conf}}
		resp, err := client.Post("https://"+r.admin+"/admin/rate-limit/config", "application/json",
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

// headgate migrate, and headgate slots reconcile after somebody changed a counter.
func TestDatabaseCommands(t *testing.T) {
	pg := testenv.StartDatabase(t, testenv.Postgres)
	url := pg.URL()
	if code, out := headgate(t, "slots", "reconcile", "--slots", url); code != exitError || !strings.Contains(out, "the tables of slots are missing or cannot be read: run headgate migrate") {
		t.Errorf("before there are tables: %d %s", code, out)
	}
	code, out := headgate(t, "migrate", "--slots", url)
	if code != 0 || !strings.Contains(out, "V1__rate_limiter_schema.sql") || !strings.Contains(out, "V2__") {
		t.Fatalf("%d %s", code, out)
	}
	if code, out := headgate(t, "migrate", "--slots", url); code != 0 || !strings.Contains(out, "up to date") {
		t.Errorf("%d %s", code, out)
	}
	for _, kind := range []string{"sqlite:", "postgres://", "mysql://", "oracle://"} {
		if code, out := headgate(t, "migrate", "--print", "--slots", kind); code != 0 || !strings.Contains(out, "RL_EVENT_SLOT_DTL") {
			t.Errorf("%s: %d %.300s", kind, code, out)
		}
	}
	r := startServe(t, "--slots", url, "--slots-migrate=false", "--slots-seed", "2/PT4S", "--slots-engine", "procedure")
	for i := range 3 {
		r.slot(fmt.Sprint("e", i))
	}
	reconcile := []string{"slots", "reconcile", "--slots", url}
	if code, out := headgate(t, reconcile...); code != 0 || !strings.Contains(out, "0 windows differ") {
		t.Errorf("%d %s", code, out)
	}
	pg.Exec("UPDATE RL_WNDW_CT SET SLOT_CT = 0 WHERE SLOT_CT = 2")
	if code, out := headgate(t, reconcile...); code != exitProblems || !strings.Contains(out, "counted=0 slots=2") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, append(reconcile, "--repair", "--from", "2025-06-01T11:00:00Z", "--to", "2025-06-01T13:00:00Z")...); code != 0 || !strings.Contains(out, "1 windows differ, 1 repaired") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, reconcile...); code != 0 {
		t.Errorf("after the repair: %d %s", code, out)
	}
	if d := r.slot("e3"); d["delayMs"].(float64) < 4000 {
		t.Errorf("the repaired window took another event: %v", d)
	}
	if code, out := headgate(t, "slots", "reconcile", "--slots", url, "--from", "noon"); code != exitError || !strings.Contains(out, "--from") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, "migrate"); code != exitError || !strings.Contains(out, "HEADGATE_SLOTS") {
		t.Errorf("%d %s", code, out)
	}
}

func TestSlotCommand(t *testing.T) {
	testenv.UseSQLite(t)
	r := startServe(t, "--slots", "sqlite::memory:", "--slots-seed", "0/PT4S")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"slot e", exitOverLimit, "retry-after="},
		{"slot e --config none", exitError, "404"},
		{"slot e --at tomorrow", exitError, "requestedTime"},
		{"slot e --addr nowhere", exitError, "--addr"},
	} {
		args := strings.Fields(c.args)
		if !strings.Contains(c.args, "--addr") {
			args = append(args, "--addr", "http://"+r.http)
		}
		if code, out := headgate(t, args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.args, code, out, c.code, c.want)
		}
	}
	if code, out := headgate(t, "slot", "e", "--addr", "http://127.0.0.1:1", "--timeout", "1s"); code != exitError || !strings.Contains(out, "--slots") {
		t.Errorf("nobody listens: %d %s", code, out)
	}
}
