package unary

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestGRPCIO runs a client in Python, where there is one: python3, or what
// HEADGATE_TEST_PYTHON names, with the package grpcio installed.
func TestGRPCIO(t *testing.T) {
	python := cmp.Or(os.Getenv("HEADGATE_TEST_PYTHON"), "python3")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := exec.CommandContext(ctx, python, "-c", "import grpc").Run(); err != nil {
		t.Skipf("%s has no grpcio: %v", python, err)
	}
	s, addr := start(t, nil)
	out, err := exec.CommandContext(ctx, python, filepath.Join("testdata", "grpcio.py"), addr).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s%+v", out, s.Stats())
	eventually(t, "the two calls without an answer are known to be cancelled", func() bool { return s.Stats().Cancelled == 2 })
}
