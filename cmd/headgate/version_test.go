package main

import (
	"strings"
	"testing"
)

// TestVersionIsPrintedByItsFlagToo: people try --version first, also under the reference's name,
// where no setting is right.
func TestVersionIsPrintedByItsFlagToo(t *testing.T) {
	t.Setenv("REDIS_SOCKET_TYPE", "nonsense")
	_, want := headgate(t, "version")
	if !strings.HasPrefix(want, "headgate ") || strings.Count(want, "\n") != 1 {
		t.Fatalf("headgate version prints %q", want)
	}
	for _, args := range [][]string{{"--version"}, {"-v"}, {referenceName, "--version"}} {
		if code, out := headgate(t, args...); code != exitOK || out != want {
			t.Errorf("headgate %v: %d %q, want %q", args, code, out, want)
		}
	}
}
