package repo

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLibraryNeedsNoGRPC: who limits in process, or by net/http, does not get gRPC,
// Envoy's API and the AWS SDK into the program, nor OpenTelemetry's SDK: its API is enough.
func TestLibraryNeedsNoGRPC(t *testing.T) {
	for _, dir := range []string{".", "./middleware"} {
		for _, path := range deps(t, dir) {
			for _, unwanted := range []string{"google.golang.org/grpc", "go.opentelemetry.io/otel/sdk",
				"github.com/envoyproxy/", awsSDK} {
				if strings.HasPrefix(path, unwanted) {
					t.Errorf("%s imports %s, directly or not", dir, path)
				}
			}
		}
	}
}

const awsSDK = "github.com/aws/"

// TestWhoHasTheAWSSDK: only the program that may keep limits in DynamoDB.
func TestWhoHasTheAWSSDK(t *testing.T) {
	for program, has := range map[string]bool{"headgate": true, "notify-gateway": false, "notify-sender": false} {
		found := false
		for _, path := range deps(t, "./cmd/"+program) {
			found = found || strings.HasPrefix(path, awsSDK)
		}
		if found != has {
			t.Errorf("cmd/%s contains the AWS SDK: %v, want %v", program, found, has)
		}
	}
}

// deps are the packages that one consists of.
func deps(t *testing.T, dir string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", dir)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", describe(err))
	}
	return strings.Fields(string(out))
}
