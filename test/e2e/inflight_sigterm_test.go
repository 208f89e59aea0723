package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestInFlightEnvoyTerminates: an Envoy that is terminated reports the end of
// every request in flight and hangs up in the same moment. None of these ends
// may be dropped because its caller is gone: without an access log nobody tells
// of them again.
func TestInFlightEnvoyTerminates(t *testing.T) {
	const inside = 200
	rules := strings.Replace(inFlightRules, "threshold: 5", fmt.Sprintf("threshold: %d", inside), 1)
	for name, serve := range map[string][]string{
		"unary": {"--services", ""},
		"grpc":  {"--transport", "grpc"},
	} {
		t.Run(name, func(t *testing.T) {
			besides(t, func(t *testing.T, env environment) {
				env.backend = testenv.StartRedis(t).URL()
				s := startStage(t, env, staging{
					rules: rules, serve: serve,
					// Nothing listens there: no access log is connected.
					print: []string{"--services", "127.0.0.1:1"},
				})
				var clients sync.WaitGroup
				defer clients.Wait()
				defer s.app.LetGo()
				s.fill(&clients, inside, "/five/hold")
				s.wantLeft(0, "/five/x")
				s.Envoy.Stop()
				start := time.Now()
				s.wantLeft(inside, "/five/x")
				t.Logf("all %d ended within %v", inside, time.Since(start))
				if n := s.leases("expired") + s.leases("lost"); n != 0 {
					t.Errorf("%d leases were not ended by their requests' end", n)
				}
			})
		})
	}
}
