package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate-rls/headgate/test/testenv"
)

const sharedRules = `domain: example
descriptors:
  - key: client
    rate_limit: {unit: year, requests_per_unit: 100, local_share: 10}
`

func writeRules(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestLocalShare: two replicas on one Redis admit what the limit says,
// of which one in ten is a trip.
func TestLocalShare(t *testing.T) {
	rules, redis := writeRules(t, sharedRules), testenv.StartRedis(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admitted := 0
	for i, hits := range []string{"54", "36"} {
		r := startServe(t, "--rules", rules, "--backend", redis.URL())
		client := rls.NewRateLimitServiceClient(r.Dial(r.GRPC))
		for range 60 {
			resp, err := client.ShouldRateLimit(ctx, exampleRequest())
			if err != nil {
				t.Fatal(err)
			}
			if resp.OverallCode == rls.RateLimitResponse_OK {
				admitted++
				if want := uint32(100 - admitted); resp.Statuses[0].LimitRemaining != want {
					t.Fatalf("%d remaining, want %d", resp.Statuses[0].LimitRemaining, want)
				}
			}
		}
		_, metrics := r.Get(r.Debug, "/metrics")
		for _, want := range []string{"\nheadgate_share_hits_total " + hits + "\n", "\nheadgate_share_keys 1\n",
			"\nheadgate_share_taken_units_total " + hits + "\n"} {
			if !strings.Contains(metrics, want) {
				t.Errorf("replica %d: the metrics lack %q", i, want)
			}
		}
	}
	if admitted != 100 {
		t.Errorf("%d admitted of 100", admitted)
	}
}
