package unary

import (
	"syscall"
	"testing"
)

// idleConnections is how many connections the test may open.
func idleConnections(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Cur-200, 10_000))
}
