//go:build !rlsonly

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// fewestCommands is how many commands this build has at least.
const fewestCommands = 30

// sharedStores start the stores that replicas can share in this build, and return their URLs.
var sharedStores = map[string]func(t *testing.T) string{
	"redis":    func(t *testing.T) string { return testenv.StartRedis(t).URL() },
	"postgres": func(t *testing.T) string { return testenv.StartDatabase(t, testenv.Postgres).URL() },
	"sqlite": func(t *testing.T) string {
		testenv.UseSQLite(t)
		return "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	},
}

// capturedIsReplayed: a file of seven requests, of which the built-in rules refuse two, can be replayed.
func capturedIsReplayed(t *testing.T, file string) {
	t.Helper()
	code, out := headgate(t, "replay", "--rules", "../../internal/app/server/example.yaml", file)
	if code != exitOK || !strings.Contains(out, "7 requests") ||
		!strings.Contains(out, "example/client:per-client  2            2            +0") {
		text, _ := os.ReadFile(file)
		t.Errorf("replay exits with %d:\n%s\nof\n%s", code, out, text)
	}
}
