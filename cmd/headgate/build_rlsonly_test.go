//go:build rlsonly

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// fewestCommands is how many commands this build has at least.
const fewestCommands = 14

// sharedStores start the stores that replicas can share in this build, and return their URLs.
var sharedStores = map[string]func(t *testing.T) string{
	"redis": func(t *testing.T) string { return testenv.StartRedis(t).URL() },
}

// capturedIsReplayed: this build cannot replay; the file has the seven requests.
func capturedIsReplayed(t *testing.T, file string) {
	t.Helper()
	if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), "\n") != 7 {
		t.Errorf("%v: captured\n%s", err, text)
	}
}
