//go:build !rlsonly

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// headgate migrate, and headgate slots reconcile after somebody changed a counter.
func TestDatabaseCommands(t *testing.T) {
	pg := testenv.StartDatabase(t, testenv.Postgres)
	url := pg.URL()
	if code, out := headgate(t, "slots", "reconcile", "--slots", url); code != exitError ||
		!strings.Contains(out, "the tables of slots are missing: run headgate migrate") {
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
		if code, out := headgate(t, "migrate", "--print", "--slots", kind); code != 0 ||
			!strings.Contains(out, "RL_EVENT_SLOT_DTL") {
			t.Errorf("%s: %d %.300s", kind, code, out)
		}
	}
	r := startServe(t, "--slots", url, "--slots-migrate=false", "--slots-seed", "2/PT4S", "--slots-engine", "procedure")
	if !strings.Contains(r.Log.String(), "PostgreSQL no longer has --slots-engine procedure") {
		t.Errorf("the log does not say that the engine is another: %s", r.Log)
	}
	for i := range 3 {
		r.Slot(fmt.Sprint("e", i))
	}
	reconcile := []string{"slots", "reconcile", "--slots", url}
	if code, out := headgate(t, reconcile...); code != 0 || !strings.Contains(out, "0 windows differ") {
		t.Errorf("%d %s", code, out)
	}
	pg.Exec("UPDATE RL_WNDW_CT SET SLOT_CT = 0 WHERE SLOT_CT = 2")
	if code, out := headgate(t, reconcile...); code != exitNo || !strings.Contains(out, "counted=0 slots=2") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, append(reconcile, "--repair", "--from", "2025-06-01T11:00:00Z", "--to",
		"2025-06-01T13:00:00Z")...); code != 0 || !strings.Contains(out, "1 windows differ, 1 repaired") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, reconcile...); code != 0 {
		t.Errorf("after the repair: %d %s", code, out)
	}
	if d := r.Slot("e3"); d["delayMs"].(float64) < 4000 {
		t.Errorf("the repaired window took another event: %v", d)
	}
	if code, out := headgate(t, "slots", "reconcile", "--slots", url, "--from", "noon"); code != exitProblems ||
		!strings.Contains(out, "--from") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, "slots", "config", "set", "other", "--max", "5", "--window", "PT1M", "--slots",
		url); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	pg.Exec("UPDATE RL_EVENT_WNDW_CONFIG SET CONFIG_OPT_TX = 'by hand' WHERE WNDW_CONFIG_NM = 'default'")
	if code, out := headgate(t, "slots", "config", "list", "--slots", url); code != exitError ||
		!strings.Contains(out, "other max=5") || !strings.Contains(out, `config "default" cannot be read: `) {
		t.Errorf("beside a config that cannot be read: %d %s", code, out)
	}
	if code, out := headgate(t, "migrate"); code != exitProblems || !strings.Contains(out, "HEADGATE_SLOTS") {
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
		{"slot e --config none", exitProblems, "404"},
		{"slot e --at tomorrow", exitProblems, "requestedTime"},
		{"slot e --addr nowhere", exitProblems, "--addr"},
	} {
		args := strings.Fields(c.args)
		if !strings.Contains(c.args, "--addr") {
			args = append(args, "--addr", "http://"+r.HTTP)
		}
		if code, out := headgate(t, args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.args, code, out, c.code, c.want)
		}
	}
	if code, out := headgate(t, "slot", "e", "--addr", "http://127.0.0.1:1", "--timeout", "1s"); code != exitError ||
		!strings.Contains(out, "is the service running, and is --addr its HTTP address?") {
		t.Errorf("nobody listens: %d %s", code, out)
	}
}

// A service with --slots-auth is asked with the token in the environment.
func TestSlotCommandSendsTheToken(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	r := startServe(t, "--slots", "sqlite::memory:", "--slots-seed", "10/PT4S", "--slots-auth")
	for _, want := range []string{"e scheduled=", " replayed"} {
		if code, out := headgate(t, "slot", "e", "--addr", "http://"+r.HTTP); code != exitOK || !strings.Contains(out, want) {
			t.Errorf("with the token: %d %s, want %q", code, out, want)
		}
	}
	t.Setenv("HEADGATE_ADMIN_TOKEN", "")
	if code, out := headgate(t, "slot", "e", "--addr", "http://"+r.HTTP); code != exitError ||
		!strings.Contains(out, "HEADGATE_ADMIN_TOKEN") {
		t.Errorf("without: %d %s", code, out)
	}
}

// TestSlotAndSlotsAssignDoTheSame, and slots config by the database does as by the service.
func TestSlotAndSlotsAssignDoTheSame(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	database := "sqlite:" + filepath.Join(t.TempDir(), "slots.db")
	r := startServe(t, "--slots", database, "--slots-seed", "5/PT4S")
	args := []string{"e1", "--at", "2026-12-01T09:00:00Z", "--addr", "http://" + r.HTTP}
	code, first := headgate(t, append([]string{"slot"}, args...)...)
	again, second := headgate(t, append([]string{"slots", "assign"}, args...)...)
	if code != exitOK || again != exitOK || strings.TrimSpace(first)+" replayed\n" != second {
		t.Errorf("slot: %d %s; slots assign: %d %s", code, first, again, second)
	}
	t.Setenv("HEADGATE_SLOTS", database)
	_, byDatabase := headgate(t, "slots", "config", "list")
	_, byService := headgate(t, "slots", "config", "list", "--addr", "http://"+r.HTTP)
	if byDatabase != byService || !strings.Contains(byDatabase, "default max=5 window=PT4S") {
		t.Errorf("by the database: %s; by the service: %s", byDatabase, byService)
	}
	if code, out := headgate(t, "slots", "config", "set", "letters", "--max", "7", "--window", "PT1H"); code != exitOK {
		t.Fatal(out)
	}
	if code, out := headgate(t, "slots", "config", "get", "letters", "--addr", "http://"+r.HTTP); code != exitOK ||
		!strings.Contains(out, "letters max=7 window=PT1H") {
		t.Errorf("the service has %d %s", code, out)
	}
	t.Setenv("HEADGATE_ADMIN_TOKEN", "") // the database needs none
	if code, out := headgate(t, "slots", "config", "set", "letters", "--max", "x"); code != exitProblems {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, "slots", "config", "pause", "letters"); code != exitOK ||
		!strings.Contains(out, "--max 7") {
		t.Errorf("%d %s", code, out)
	}
}
