package compat

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// The debug port lists and serves what the reference's does, by the same paths and names.
func TestDebugPortOfTheReference(t *testing.T) {
	t.Parallel()
	reference := testenv.Built(t, "RATELIMIT_REFERENCE", "ratelimit-reference", "service_cmd")
	server := testenv.StartRedis(t)
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 2))
	env := map[string]string{"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false",
		"RUNTIME_IGNOREDOTFILES": "true", "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": server.Addr, "USE_STATSD": "false",
		"HEADGATE_DRAIN_DELAY": "0s"}
	theirs, ours := startProgram(t, reference, env), start(t, env)
	names := func(s *service, path string) (list []string) {
		code, page := s.get("http://" + s.debug + path)
		if code != 200 {
			t.Errorf("%s: %d", path, code)
		}
		for line := range strings.Lines(page) {
			name, _, ok := strings.Cut(line, ": ")
			if !ok {
				t.Errorf("%s has the line %q", path, line)
			}
			list = append(list, name)
		}
		return list
	}
	for _, path := range []string{"/", "/stats"} {
		have, want := names(ours, path), names(theirs, path)
		if len(want) == 0 {
			t.Errorf("the reference has nothing at %s", path)
		}
		for _, name := range want {
			if !slices.Contains(have, name) {
				t.Errorf("%s has %v, and not %s", path, have, name)
			}
		}
	}
	for _, path := range names(theirs, "/") {
		if path == "/debug/pprof/profile" || path == "/debug/pprof/trace" { // which take their time
			path += "?seconds=1"
		}
		if code, _ := ours.get("http://" + ours.debug + path); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
	}
}
