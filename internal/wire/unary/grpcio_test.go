package unary

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestGRPCIO runs a client in Python, whose HTTP/2 is neither Go's nor Envoy's.
func TestGRPCIO(t *testing.T) {
	python := testenv.UseClient(t, testenv.GRPCIO)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, addr := start(t, nil)
	out, err := exec.CommandContext(ctx, python, filepath.Join("testdata", "grpcio.py"), addr).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s%+v", out, s.Stats())
	eventually(t, "the two calls without an answer are known to be cancelled",
		func() bool { return s.Stats().Cancelled == 2 })
}
