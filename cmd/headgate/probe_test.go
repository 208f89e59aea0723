//go:build !rlsonly

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestCheckProbesTheBackend: one line for each ability, up to the first that is missing, and an exit code for a
// pipeline.
func TestCheckProbesTheBackend(t *testing.T) {
	server, evicts := testenv.StartRedis(t, testenv.WithPassword("secret")), testenv.StartRedis(t, testenv.WithArgs(
		"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
	spreads := testenv.StartTwemproxy(t, "", evicts.Addr, testenv.StartRedis(t).Addr).Addr
	rules := writeRules(t, sharedRules)
	for _, c := range []struct {
		args  string
		code  int
		want  string // one of the lines, or a part of it
		lines int
	}{
		{server.URL(), exitOK, "backend: one server for all keys: ok\n", 8},
		{server.URL() + " " + rules, exitOK, "\nok: ", 0},
		{"redis://" + server.Addr, exitProblems, "backend: login: error: ", 2},
		{"redis://" + spreads, exitProblems, "backend: one server for all keys: error: ", 6},
		{"redis://" + spreads + " " + rules, exitProblems, "layout=envoy", 6},
		{"redis://" + spreads + "?layout=envoy", exitOK, "each of them alone\n", 8},
		{evicts.URL(), exitOK, "backend: memory policy: warning: Redis at ", 8},
		{evicts.URL() + " --strict", exitProblems, "allkeys-lru", 8},
		{"redis://127.0.0.1:1", exitError, "backend: connection: error: ", 1},
		{"memory://", exitOK, "backend: ping: ok\n", 1},
		{"sqlite:" + t.TempDir() + "/none.db", exitProblems, "there is no file", 1},
		{"nothing://h", exitProblems, "no backend for scheme", 1},
	} {
		code, out := headgate(t, append([]string{"check", "--probe", "--backend"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out, c.want) || c.lines > 0 && strings.Count(out, "\n") != c.lines {
			t.Errorf("%s: exit code %d, want %d, %q and %d lines: %s", c.args, code, c.code, c.want, c.lines, out)
		}
	}
	code, out := headgate(t, "check", "--probe", "--backend", "redis://"+spreads, "--format", "json")
	var printed struct {
		Backend []struct{ Ability, Error string }
	}
	if err := json.Unmarshal([]byte(out), &printed); err != nil || code != exitProblems || len(printed.Backend) != 6 ||
		printed.Backend[4].Error != "" || !strings.Contains(printed.Backend[5].Error, "several servers") {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
}

// TestStartBehindAProxyThatSpreadsKeys: the start ends with the sentence, and goes on with layout=envoy.
func TestStartBehindAProxyThatSpreadsKeys(t *testing.T) {
	spreads := testenv.StartTwemproxy(t, "", testenv.StartRedis(t).Addr, testenv.StartRedis(t).Addr).Addr
	code, out := headgate(t, "serve", "--example", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--backend",
		"redis://"+spreads)
	if code != exitError || !strings.Contains(out, "--backend: redis: ") || !strings.Contains(out, "use layout=envoy") {
		t.Errorf("exit code %d: %s", code, out)
	}
	startServe(t, "--rules", writeRules(t, sharedRules), "--backend", "redis://"+spreads+"?layout=envoy")
}
