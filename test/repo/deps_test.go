package repo

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLibraryNeedsNoGRPC: who limits in process, or by net/http, does not get gRPC and
// Envoy's API into the program, nor OpenTelemetry's SDK: its API is enough.
func TestLibraryNeedsNoGRPC(t *testing.T) {
	for _, dir := range []string{".", "./middleware"} {
		cmd := exec.Command("go", "list", "-deps", dir)
		cmd.Dir = root(t)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", describe(err))
		}
		for _, path := range strings.Fields(string(out)) {
			if strings.HasPrefix(path, "google.golang.org/grpc") || strings.HasPrefix(path, "go.opentelemetry.io/otel/sdk") || strings.HasPrefix(path, "github.com/envoyproxy/") {
				t.Errorf("%s imports %s, directly or not", dir, path)
			}
		}
	}
}
