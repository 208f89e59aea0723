package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const presenceGrace = 2 * time.Second

var presenceFlags = []string{"--owner-grace", presenceGrace.String()}

// onRedis is the latest Envoy with a Redis.
func onRedis(t *testing.T) (environment, *testenv.RedisServer) {
	t.Helper()
	env, redis := latest(t), testenv.StartRedis(t)
	env.backend = redis.URL()
	return env, redis
}

// TestInFlightProxyAndHeadgateGone: Envoy and the headgate that it spoke to die
// together. Another headgate ends the requests, long before the leases expire.
func TestInFlightProxyAndHeadgateGone(t *testing.T) {
	t.Parallel()
	env, _ := onRedis(t)
	s := startStage(t, env, staging{services: 1, serve: presenceFlags, print: presenceFlags})
	other := startService(t, append([]string{"--rules", s.rules, "--backend", env.backend}, presenceFlags...)...)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer s.app.LetGo()
	s.fill(&clients, 5, "/five/hold")
	s.wantRenewed(5)
	time.Sleep(presenceGrace) // the other one has looked meanwhile
	start := time.Now()
	s.Envoy.Kill()
	s.services[0].Kill()
	s.services[0] = other
	s.wantLeft(5, "/five/x")
	t.Logf("all ended after %v, with a grace of %v", time.Since(start), presenceGrace)
	testenv.Eventually(t, 10*time.Second, "say what was ended", func() string {
		if n := s.leases("reaped"); n != 5 {
			return fmt.Sprintf("%d leases are counted", n)
		}
		return ""
	})
}

// TestInFlightHeadgateRestarts: a headgate that is started again knows what is
// in flight at once, and whose it is.
func TestInFlightHeadgateRestarts(t *testing.T) {
	t.Parallel()
	env, _ := onRedis(t)
	s := startStage(t, env, staging{serve: presenceFlags, print: presenceFlags})
	var clients sync.WaitGroup
	defer clients.Wait()
	defer s.app.LetGo()
	s.fill(&clients, 5, "/five/hold")
	s.wantRenewed(5)
	time.Sleep(presenceGrace)
	s.services[0].Kill()
	s.Envoy.Kill()
	s.services[0] = startService(t, append([]string{"--rules", s.rules, "--backend", env.backend}, presenceFlags...)...)
	inFlight, complete := s.services[0].Metric("headgate_requests_in_flight"),
		s.services[0].Metric("headgate_requests_in_flight_complete")
	if left := s.left("/five/x"); inFlight != 5-float64(left) || complete != 1 {
		t.Errorf("%v in flight and complete %v after the start, %d places are left", inFlight, complete, left)
	}
	s.wantLeft(5, "/five/x")
}

// TestInFlightAccessLogCutOff: an Envoy whose access log gets nowhere is there
// as long as it asks, though it is only refused.
func TestInFlightAccessLogCutOff(t *testing.T) {
	t.Parallel()
	var proxy *testenv.Proxy
	s := startStage(t, latest(t), staging{serve: presenceFlags, print: presenceFlags, logs: func(addr string) string {
		proxy = testenv.StartProxy(t, addr)
		return proxy.Addr
	}})
	var clients sync.WaitGroup
	defer clients.Wait()
	defer s.app.LetGo()
	s.fill(&clients, 5, "/five/hold")
	s.wantRenewed(5)
	proxy.Freeze()
	proxy.Cut()
	var c tally
	for start := time.Now(); time.Since(start) < 5*presenceGrace; time.Sleep(presenceGrace / 20) {
		c.add(s.try("/five/work"))
	}
	if got := c.want(t); got.admitted != 0 || got.refused == 0 {
		t.Errorf("five are inside, and %+v", got)
	}
	if n := s.leases("reaped"); n != 0 {
		t.Errorf("%d leases of a proxy that is there were ended", n)
	}
	proxy.Resume()
}

// TestInFlightUnknownEnds: in healthy traffic no end is of an unknown lease, so
// that a store that has lost them shows.
func TestInFlightUnknownEnds(t *testing.T) {
	t.Parallel()
	env, redis := onRedis(t)
	s := startStage(t, env, staging{services: 2})
	s.storm(150, "/five/work?ms=5")
	s.wantAllBack("/five/x")
	time.Sleep(3 * time.Second) // each end is reported twice
	if n := s.leases("unknown"); n != 0 {
		t.Errorf("%d of 150 ends were of unknown leases", n)
	}
	s.app.Hold()
	var clients sync.WaitGroup
	s.fill(&clients, 5, "/five/hold")
	if err := redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.app.LetGo()
	clients.Wait()
	testenv.Eventually(t, 20*time.Second, "count the leases that were lost", func() string {
		if n := s.leases("unknown"); n != 5 {
			return fmt.Sprintf("%d unknown", n)
		}
		return ""
	})
	s.wantFive()
}
