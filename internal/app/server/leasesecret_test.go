package server

import (
	"os"
	"path/filepath"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate-rls/headgate/ratelimit"
)

// TestLeaseSecretIsReplaced: replicas that are restarted one after the other accept the leases of each other at each
// step.
func TestLeaseSecretIsReplaced(t *testing.T) {
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	err := os.WriteFile(rules, []byte("domain: d\ndescriptors:\n- {key: k, concurrency: [{threshold: 1, response: "+
		"{statusCode: 429}}]}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	const old, other = "the-old-secret-of-1", "the-new-secret-of-2"
	type step func(op, value string) *rls.RateLimitResponse
	var steps []step
	for _, secret := range []string{old, old + " " + other, other + " " + old, other} {
		s := startServe(t, "--rules", rules, "--backend", "sqlite:"+filepath.Join(dir, "limits.db"), "--lease-secret", secret)
		client := rls.NewRateLimitServiceClient(s.Dial(s.GRPC))
		steps = append(steps, func(op, value string) *rls.RateLimitResponse {
			t.Helper()
			entries := []*common.RateLimitDescriptor_Entry{{Key: "k"}}
			if op != "" {
				entries = []*common.RateLimitDescriptor_Entry{{Key: ratelimit.OpKey, Value: op},
					{Key: ratelimit.LeaseEntry, Value: value}}
			}
			resp, err := client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "d",
				Descriptors: []*common.RateLimitDescriptor{{Entries: entries}}})
			if err != nil {
				t.Fatal(err, s.Log)
			}
			return resp
		})
	}
	lease := func(s step) string {
		t.Helper()
		return s("", "").DynamicMetadata.GetFields()[ratelimit.DefaultLeaseKey].GetStringValue()
	}
	// ended reports whether a lease that one step has granted is ended by another.
	ended := func(granted, by int) bool {
		t.Helper()
		token := lease(steps[granted])
		if token == "" {
			t.Fatalf("step %d grants nothing", granted)
		}
		steps[by]("release", token)
		second := lease(steps[granted])
		steps[granted]("release", second)
		return second != ""
	}
	for granted := range steps {
		for _, by := range []int{granted - 1, granted, granted + 1} {
			if by >= 0 && by < len(steps) && !ended(granted, by) {
				t.Errorf("a lease of step %d is not ended by step %d", granted, by)
			}
		}
	}
	if ended(0, 3) {
		t.Error("a secret that is not given any more is accepted")
	}
}
