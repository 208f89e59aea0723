package compat

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/headgate-rls/headgate/test/testenv"
)

// While the second Redis does not answer, clients of limits per hour get their answers in time, also those on the
// connection of clients of limits per second, and a client whose limit is spent stays refused.
func TestSilentSecondRedis(t *testing.T) {
	t.Parallel()
	main, second := testenv.StartRedis(t), testenv.StartRedis(t, testenv.WithPassword("zwei"))
	s := start(t, twoRedis(t, main, second))
	dial := func() rls.RateLimitServiceClient {
		conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(s.creds))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return rls.NewRateLimitServiceClient(conn)
	}
	shared, own := dial(), dial()
	if got := s.codes(3, "d", "hour=spent"); !strings.HasSuffix(got, "429") {
		t.Fatal(got)
	}
	ctx, stop := context.WithTimeout(t.Context(), 6*time.Second)
	var load sync.WaitGroup
	for i := range 16 {
		load.Go(func() {
			for ctx.Err() == nil {
				within, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				_, _ = shared.ShouldRateLimit(within, inDomain("d", fmt.Sprint("many=", i)))
				cancel()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	time.Sleep(time.Second)
	for _, phase := range []string{"quiet", "silent"} {
		if phase == "silent" {
			second.Pause()
			defer second.Resume()
		}
		for name, c := range map[string]rls.RateLimitServiceClient{"own": own, "shared": shared} {
			const n = 100
			late, passed, most := 0, 0, time.Duration(0)
			ask := func(entry string) rls.RateLimitResponse_Code {
				within, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				began := time.Now()
				resp, err := c.ShouldRateLimit(within, inDomain("d", entry))
				most = max(most, time.Since(began))
				if err != nil {
					late++
				}
				return resp.GetOverallCode()
			}
			for i := range n {
				ask(fmt.Sprint("hour=", phase, name, i)) // which only the store can decide
				if ask("hour=spent") == rls.RateLimitResponse_OK {
					passed++
				}
				time.Sleep(5 * time.Millisecond)
			}
			t.Logf("%s, %s connection: %d of %d late or failed, at most %v", phase, name, late, 2*n, most)
			if passed > 0 || late > 2*n/10 {
				t.Errorf("%s, %s connection: %d of %d calls are late, and a spent limit passes %d", phase, name, late, 2*n, passed)
			}
		}
	}
	stop()
	load.Wait()
}

func inDomain(domain, entry string) *rls.RateLimitRequest {
	r := request(1, descriptor(entry))
	r.Domain = domain
	return r
}
