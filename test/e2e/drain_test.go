package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const drainRules = `
domain: e2e
descriptors:
- {key: key, value: counted, rate_limit: {name: counted, unit: year, requests_per_unit: 1000000}}
`

// TestDrainUnderLoad restarts two headgates behind one Envoy, one after the
// other, as a rolling update does. Envoy fails closed and does not try twice,
// so that every call that went missing is seen.
func TestDrainUnderLoad(t *testing.T) {
	onBackends(t, func(t *testing.T, env environment) {
		// Longer than a health check's interval and the second for which Envoy
		// collects changes of health before its workers hear of them
		// (update_merge_window).
		const delay = 2 * time.Second
		flags := []string{"--rules", writeFile(t, "rules.yaml", drainRules), "--backend", env.backend,
			"--drain-delay", delay.String(), "--drain-timeout", "5s"}
		services := []*service{startService(t, flags...), startService(t, flags...)}
		f := startFront(t, env.envoy, setup{
			Services: []string{services[0].GRPC, services[1].GRPC},
			Cluster: `health_checks: [{timeout: 2s, interval: 0.1s, no_traffic_interval: 0.1s, unhealthy_threshold: 2,
				healthy_threshold: 1,
				grpc_health_check: {service_name: ratelimit}}], common_lb_config: {healthy_panic_threshold: {value: 0}}`,
		})
		testenv.Eventually(t, 10*time.Second, "have both headgates healthy", func() string { return f.healthy(2) })
		l := startLoad(t, f, 4, "/", []string{"x-key", "counted"}, func(a answer) string {
			if a.Code != 200 || a.Remaining() < 0 {
				return fmt.Sprintf("a call failed: %v", a)
			}
			return ""
		})
		for i := range services {
			services[i] = replaceService(t, f, services[i], delay, flags)
			l.More(t, 100)
		}
		total := l.Stop(t)
		if strings.HasPrefix(env.backend, "redis") {
			if left := f.Get("/", "x-key", "counted").Remaining(); left != 1000000-total-1 {
				t.Errorf("after %d requests and one more there are %d of 1000000 left: calls were counted twice or not at all",
					total, left)
			}
		}
	})
}

// replaceService ends a service in an orderly way and starts another one in
// its place.
func replaceService(t *testing.T, f *front, old *service, delay time.Duration, flags []string) *service {
	t.Helper()
	testenv.Eventually(t, 10*time.Second, "have the service used", func() string {
		if n := old.calls(); n < 20 {
			return fmt.Sprintf("it was asked %v times", n)
		}
		return ""
	})
	start := time.Now()
	old.Terminate()
	testenv.Eventually(t, delay, "see the health check fail before the listener closes",
		func() string { return f.healthy(1) })
	code := old.Wait(delay + 8*time.Second)
	took := time.Since(start)
	if code != 0 || took < delay || !strings.Contains(old.Log(), "msg=drained") {
		t.Errorf("the service ended with code %d after %v, want 0 after %v and a log that says drained", code, took, delay)
	}
	fresh := startService(t, append(flags, "--grpc", old.GRPC)...)
	testenv.Eventually(t, 10*time.Second, "have both headgates healthy again", func() string { return f.healthy(2) })
	testenv.Eventually(t, 10*time.Second, "have the new service used", func() string {
		if fresh.calls() == 0 {
			return "it was not asked"
		}
		return ""
	})
	return fresh
}

// calls is how many requests the service has answered.
func (s *service) calls() float64 {
	s.t.Helper()
	return s.Metric("headgate_request_duration_seconds_count", `result="ok"`)
}

// healthy complains unless Envoy takes that many headgates for healthy.
func (f *front) healthy(want int) string {
	f.t.Helper()
	if n := f.clusterStat("headgate", "membership_healthy"); n != want {
		return fmt.Sprintf("%d are healthy", n)
	}
	return ""
}
