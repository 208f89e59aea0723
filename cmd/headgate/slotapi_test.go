//go:build !rlsonly

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

func TestSlotsAssignAsksForManyEvents(t *testing.T) {
	testenv.UseSQLite(t)
	r := startServe(t, "--slots", "sqlite::memory:", "--slots-seed", "2/PT4S")
	var events []string
	for i := range 1003 { // more than fit into one request
		events = append(events, fmt.Sprint("e", i))
	}
	args := append([]string{"slots", "assign", "--addr", "http://" + r.HTTP, "--at", "2026-12-01T09:00:00Z"}, events...)
	code, out := headgate(t, args...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != len(events) || !strings.HasPrefix(lines[0], "e0 scheduled=2026-12-01T09:00:0") ||
		!strings.HasPrefix(lines[1002], "e1002 scheduled=2026-12-01T09:33:") {
		t.Errorf("%d, %d lines from %q to %q", code, len(lines), lines[0], lines[len(lines)-1])
	}
	code, out = headgate(t, "slots", "assign", "--addr", "http://"+r.HTTP, "new", "e7", strings.Repeat("x", 51))
	lines = strings.Split(strings.TrimSpace(out), "\n")
	if code != exitProblems || len(lines) != 3 || !strings.HasPrefix(lines[0], "new scheduled=") ||
		!strings.HasSuffix(lines[1], " replayed") || !strings.Contains(lines[2], "400 Bad Request: eventId has 51 bytes") {
		t.Errorf("one of three is wrong: %d %s", code, out)
	}
	if code, out := headgate(t, "slots", "assign"); code != exitProblems || !strings.Contains(out, "arg") {
		t.Errorf("no event: %d %s", code, out)
	}
}

func TestSlotsConfig(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	r := startServe(t, "--slots", "sqlite::memory:")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"list", 0, ""},
		{"get default", exitNo, `404 Not Found: no active config is named "default"`},
		{"pause default", exitNo, `no active config is named "default"`},
		{"set default --max 5", exitProblems, "a new one needs --max and --window"},
		{"set default --max 100 --window 4s", exitProblems, "windowSize is wrong"},
		{"set default --max 100 --window PT4S --jitter stratified --scope pool", 0,
			"default max=100 window=PT4S scope=pool jitter=stratified since="},
		{"set letters --max 7 --window PT1H --calendar {\"zone\":\"UTC\",\"open\":[\"mon-fri|09:00-17:00\"]}", 0,
			`letters max=7 window=PT1H calendar={"zone":"UTC","open":["mon-fri 09:00-17:00"]}`},
		{"set letters --calendar {", exitProblems, "--calendar"},
		{"set default --max 200", 0, "default max=200 window=PT4S scope=pool jitter=stratified since="},
		{"set letters --max-delay PT5M", exitProblems, "maxDelay is PT5M, want at least windowSize (PT1H)"},
		{"set letters --max-delay PT3H", 0, "letters max=7 window=PT1H max-delay=PT3H calendar="},
		{"set letters --max-delay |", 0, "letters max=7 window=PT1H calendar="},
		{"set default --max -1", exitProblems, "maxPerWindow is -1"},
		{"pause default", 0, "to resume: headgate slots config set default --max 200"},
		{"get default", 0, "default paused window=PT4S scope=pool jitter=stratified since="},
		{"set letters --calendar |", 0, "letters max=7 window=PT1H since="},
		{"list", 0, "letters max=7"},
		{"put default", exitProblems, "unknown command"},
		{"set", exitProblems, "arg"},
	} {
		args := []string{"slots", "config"}
		for _, word := range strings.Fields(c.args) {
			args = append(args, strings.TrimSpace(strings.ReplaceAll(word, "|", " "))) // a lone | is an empty argument
		}
		if args[2] != "put" {
			args = append(args, "--addr", "http://"+r.HTTP)
		}
		if code, out := headgate(t, args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.args, code, out, c.code, c.want)
		}
	}
	t.Setenv("HEADGATE_ADMIN_TOKEN", "another-token-of-some-length")
	if code, out := headgate(t, "slots", "config", "list", "--addr", "http://"+r.HTTP); code != exitError ||
		!strings.Contains(out, "401 Unauthorized") || strings.Contains(out, "another-token") {
		t.Errorf("with a wrong token: %d %s", code, out)
	}
}

// The listener for admins may demand certificates; the environment of the service
// says where it is.
func TestSlotsConfigAtTheAdminListener(t *testing.T) {
	testenv.UseSQLite(t)
	certs := testenv.TestCerts(t)
	r := startServe(t, "--slots", "sqlite::memory:", "--admin", "127.0.0.1:0",
		"--admin-tls-cert", certs.Server.CertFile, "--admin-tls-key", certs.Server.KeyFile, "--admin-client-ca", certs.CAFile)
	t.Setenv("HEADGATE_ADMIN", r.Admin)
	t.Setenv("HEADGATE_ADMIN_TLS_CERT", certs.Server.CertFile)
	t.Setenv("HEADGATE_ADMIN_TLS_KEY", certs.Server.KeyFile)
	set := []string{"slots", "config", "set", "default", "--max", "3", "--window", "PT1S", "--tls-ca", certs.CAFile}
	if code, out := headgate(t, append(set, "--tls-cert", certs.Client.CertFile, "--tls-key",
		certs.Client.KeyFile)...); code != 0 || !strings.Contains(out, "default max=3") {
		t.Errorf("with a certificate: %d %s", code, out)
	}
	if code, out := headgate(t, set...); code != exitError || !strings.Contains(out, "no answer") {
		t.Errorf("without a certificate: %d %s", code, out)
	}
}

// What other servers answer is an error that says so.
func TestSlotCommandsAtAnotherServer(t *testing.T) {
	for answer, want := range map[string]string{
		"<html>": "unexpected answer (200 OK)", `{"results":[]}`: "0 results for 1 events", "{}": "0 results",
		"[]": "unexpected answer (200 OK)",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }))
		if code, out := headgate(t, "slot", "e", "--addr", s.URL); code != exitError || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s, want %s", answer, code, out, want)
		}
		s.Close()
	}
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer s.Close()
	defer close(done)
	began := time.Now()
	if code, out := headgate(t, "slot", "e", "--addr", s.URL, "--timeout", "100ms"); code != exitError ||
		!strings.Contains(out, "no answer") || time.Since(began) > 30*time.Second {
		t.Errorf("a server that says nothing: %d %s after %v", code, out, time.Since(began))
	}
}
