package compat

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// With LOG_FORMAT=json each line has the fields that the reference's lines have, with its words for levels.
func TestLogHasTheReferencesFields(t *testing.T) {
	t.Parallel()
	reference := testenv.Built(t, "RATELIMIT_REFERENCE", "ratelimit-reference", "service_cmd")
	server := testenv.StartRedis(t)
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 2))
	env := map[string]string{"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false",
		"RUNTIME_IGNOREDOTFILES": "true", "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": server.Addr,
		"USE_STATSD": "false", "LOG_FORMAT": "json", "LOG_LEVEL": "debug",
		"REDIS_TLS_CACERT": "/none", "HEADGATE_DRAIN_DELAY": "0s"} // headgate warns of the certificate
	theirs, _ := logLines(startProgram(t, reference, env))
	ours, levels := logLines(start(t, env))
	if len(theirs) == 0 || !slices.Equal(ours, theirs) {
		t.Errorf("all lines of headgate have %v, those of the reference %v", ours, theirs)
	}
	for _, level := range []string{"info", "warning"} {
		if !levels[level] {
			t.Errorf("headgate has the levels %v, and not %s", levels, level)
		}
	}
}

// logLines returns the fields that all lines of a log have that are the program's own, and the levels that some have.
// Statistics that the reference's library prints are none of them.
func logLines(s *service) (fields []string, levels map[string]bool) {
	s.t.Helper()
	levels = map[string]bool{}
	for line := range strings.Lines(s.Log()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["logger"] == "gostats.loggingsink" {
			continue
		}
		var names []string
		for _, name := range []string{"@message", "@timestamp", "level", "msg", "time"} {
			if _, ok := entry[name]; ok {
				names = append(names, name)
			}
		}
		if len(names) == 3 {
			at, _ := entry["@timestamp"].(string)
			if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
				s.t.Errorf("%s: %v", line, err)
			}
		}
		if fields != nil && !slices.Equal(fields, names) {
			s.t.Errorf("fields %v, before %v: %s", names, fields, line)
		}
		fields = names
		level, _ := entry["level"].(string)
		levels[level] = true
	}
	return fields, levels
}
