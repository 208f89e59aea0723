package compat

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// headgateProgram is the same program under its own name.
func headgateProgram() string { return filepath.Join(filepath.Dir(program), "headgate") }

// The image runs serve where a manifest names no command. With the reference's environment it then serves in its place,
// and one line of the log says so.
func TestServeStandsInForTheReference(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 2))
	redis := testenv.StartRedis(t)
	env := rules(root, "BACKEND_TYPE", "", "REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", redis.Addr, "USE_STATSD", "false",
		"HEADGATE_SERVICE_HOST", "10.0.0.1") // which Kubernetes sets for a Service
	delete(env, "HEADGATE_DRAIN_DELAY")
	s := startProgram(t, headgateProgram(), env, "serve")
	if got := s.codes(3, "d", "a=b"); got != "200 200 429" {
		t.Errorf("got %s", got)
	}
	if keys, err := redis.Client().Keys(t.Context(), "headgate:*").Result(); err != nil || len(keys) == 0 {
		t.Errorf("no counter is in Redis: %v", err)
	}
	want := "serving in place of envoyproxy/ratelimit, because its variables are set, and none of headgate's: " +
		"REDIS_SOCKET_TYPE, REDIS_URL, RUNTIME_ROOT, RUNTIME_SUBDIRECTORY; any flag or HEADGATE_ variable, such as " +
		"HEADGATE_RULES, ends that"
	if n := strings.Count(s.Log(), want); n != 1 {
		t.Errorf("%d lines say %q:\n%s", n, want, s.Log())
	}
}

// Where it is not clear who is meant, serve keeps to headgate's own settings and says what has no effect. It never
// starts without rules.
func TestServeAndVariablesOfBoth(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 2))
	write(t, filepath.Join(root, "own/a.yaml"), limited("d", 1))
	both := map[string]string{"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit", "REDIS_SOCKET_TYPE": "tcp",
		"REDIS_URL": "geheim:1"}
	addresses := func(more ...string) map[string]string {
		env := map[string]string{}
		for i := 0; i < len(more); i += 2 {
			env[more[i]] = more[i+1]
		}
		for name, port := range map[string]string{"HTTP": "PORT", "GRPC": "GRPC_PORT", "DEBUG": "DEBUG_PORT"} {
			env[port] = fmt.Sprint(testenv.FreePort(t))
			env["HEADGATE_"+name] = "127.0.0.1:" + env[port]
		}
		env["HEADGATE_SERVICES"], env["HEADGATE_DRAIN_DELAY"] = "", "0s"
		return env
	}
	t.Run("a setting of headgate", func(t *testing.T) {
		env := addresses("HEADGATE_RULES", filepath.Join(root, "own"))
		maps.Copy(env, both)
		s := startProgram(t, headgateProgram(), env, "serve")
		if got := s.codes(2, "d", "a=b"); got != "200 429" {
			t.Errorf("got %s, want the limit of headgate's own rules", got)
		}
		if log := s.Log(); !strings.Contains(log, "variables of envoyproxy/ratelimit have no effect, because HEADGATE_") ||
			!strings.Contains(log, "REDIS_SOCKET_TYPE, REDIS_URL, RUNTIME_ROOT") || strings.Contains(log, "geheim") {
			t.Errorf("the log says:\n%s", log)
		}
	})
	for _, c := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"a setting of headgate, and no rules", map[string]string{"HEADGATE_LOG_LEVEL": "debug", "RUNTIME_ROOT": root},
			"no rules to serve"},
		{"REDIS_URL alone, and no rules", map[string]string{"REDIS_URL": "geheim:1", "REDIS_SOCKET_TYPE": "tcp"},
			"RUNTIME_ROOT: directory /srv/runtime_data/current/config does not exist"},
		{"the reference's rules are not there", map[string]string{"RUNTIME_ROOT": "/nowhere", "REDIS_URL": "r:1"},
			"serving in place of envoyproxy/ratelimit, because its variables are set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, out := testenv.RunProgram(t, headgateProgram(), list(c.env), "serve")
			if code == 0 || !strings.Contains(out, c.want) || strings.Contains(out, "geheim") {
				t.Errorf("exit code %d, want an error with %q:\n%s", code, c.want, out)
			}
		})
	}
}
