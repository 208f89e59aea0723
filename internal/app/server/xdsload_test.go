package server

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/headgate-rls/headgate/test/controlplane"
)

// New rules under load lose no call, and no request is answered by the rules of two
// versions.
func TestXDSReloadUnderLoadLosesNoCall(t *testing.T) {
	onTransports(t, func(t *testing.T, transport []string) {
		plane := controlplane.Start(t)
		send := func(version uint32) {
			var list []*rlsconf.RateLimitDescriptor
			for _, key := range []string{"a", "b", "c", "d"} {
				list = append(list, controlplane.Rule(key, "", 1_000_000+version, rlsconf.RateLimitUnit_YEAR))
			}
			for range 500 { // so that a compile takes its time
				list = append(list, controlplane.Rule("other", string(rune('A'+len(list))), version, rlsconf.RateLimitUnit_YEAR))
			}
			plane.Send(controlplane.Config("d", list...))
		}
		send(0)
		r := startServe(t, append(transport, "--xds", plane.Addr)...)
		req := &rls.RateLimitRequest{Domain: "d"}
		for _, key := range []string{"a", "b", "c", "d"} {
			req.Descriptors = append(req.Descriptors,
				&common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "v"}}})
		}
		client := rls.NewRateLimitServiceClient(r.Dial(r.GRPC))
		var stop atomic.Bool
		var calls atomic.Int64
		var seen sync.Map
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for !stop.Load() {
					ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
					resp, err := client.ShouldRateLimit(ctx, req)
					cancel()
					if err != nil || len(resp.Statuses) != 4 {
						t.Errorf("a call is lost: %v %v", err, resp)
						return
					}
					calls.Add(1)
					first := resp.Statuses[0].CurrentLimit.GetRequestsPerUnit()
					seen.Store(first, true)
					for _, s := range resp.Statuses {
						if got := s.CurrentLimit.GetRequestsPerUnit(); got != first || got < 1_000_000 {
							t.Errorf("one answer has the limits %d and %d", first, got)
							return
						}
					}
				}
			})
		}
		for version := range uint32(15) {
			time.Sleep(40 * time.Millisecond)
			send(version + 1)
		}
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if _, last := seen.Load(uint32(1_000_015)); last || t.Failed() {
				break
			}
		}
		stop.Store(true)
		workers.Wait()
		versions := 0
		seen.Range(func(any, any) bool { versions++; return true })
		if _, last := seen.Load(uint32(1_000_015)); versions < 3 || !last {
			t.Errorf("%d calls saw %d versions, the last one: %v\n%s", calls.Load(), versions, last, r.Log)
		}
	})
}
