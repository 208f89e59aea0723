package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// fill puts n requests into the application, which stay there. The returned
// tally has them when clients are done.
func (s *stage) fill(clients *sync.WaitGroup, n int, path string) *tally {
	s.t.Helper()
	inside := s.app.Inside()
	c := new(tally)
	for range n {
		clients.Go(func() { c.add(s.try(path)) })
	}
	s.app.wantInside(s.t, inside+n)
	return c
}

// wantRenewed waits until leases were renewed n times more.
func (s *stage) wantRenewed(n int) {
	s.t.Helper()
	before := s.leases("renewed")
	testenv.Eventually(s.t, 60*time.Second, fmt.Sprintf("have %d renewals", n), func() string {
		if got := s.leases("renewed") - before; got < n {
			return fmt.Sprintf("there were %d", got)
		}
		return ""
	})
}

// TestInFlightLong: requests that take longer than their leases live keep them,
// because the access log says that they are still there.
func TestInFlightLong(t *testing.T) {
	besides(t, func(t *testing.T, env environment) {
		const life = 6 * time.Second
		s := startStage(t, env, staging{
			rules: inFlightRules + fmt.Sprintf("  lease_ttl: %v\n", life),
			// As two filters of one chain would have.
			serve: []string{"--lease-key", "lease", "--lease-key", "other_lease"},
			print: []string{"--lease-key", "other_lease"},
		})
		var clients sync.WaitGroup
		defer clients.Wait()
		defer s.app.LetGo()
		start := time.Now()
		silent := s.fill(&clients, 3, "/five/hold")
		streams := s.fill(&clients, 2, "/five/drip")
		for time.Since(start) < life {
			s.wantRenewed(5)
		}
		// All are there, and nobody else fits in.
		if n := s.services[0].Metric("headgate_requests_in_flight", `domain="e2e"`); n != 5 {
			t.Errorf("%v requests are in flight, says the metric", n)
		}
		if got := s.left("/five/x"); got != 0 {
			t.Errorf("%d places are left after %v", got, time.Since(start))
		}
		var more tally
		more.add(s.try("/five/work"))
		if got := more.want(t); got.refused != 1 {
			t.Errorf("the sixth request: %+v", got)
		}
		s.app.LetGo()
		clients.Wait()
		if a, b := silent.want(t), streams.get(); a.admitted != 3 || b.sent != 2 || b.failed+b.refused != 0 {
			t.Errorf("the five: %+v, %+v", a, b)
		}
		s.wantAllBack("/five/x")
	})
}

// TestInFlightProxyGone: the requests of a proxy that is gone end, also those
// whose end it could not tell, long before their leases expire.
func TestInFlightProxyGone(t *testing.T) {
	besides(t, func(t *testing.T, env environment) {
		const grace = 2 * time.Second
		// What Envoy has in its environment stands for what only the start of it
		// decides, such as the time.
		const name = "HOME"
		for how, c := range map[string]struct {
			end          func(*stage)
			print, envoy []string
		}{
			"killed": {end: func(s *stage) { s.Envoy.Kill() }, print: []string{"--owner", "envoy-1"}},
			"killed_env": {end: func(s *stage) { s.Envoy.Kill() }, print: []string{"--owner", "%ENVIRONMENT(" + name + ")%"},
				envoy: []string{"--service-node", os.Getenv(name)}},
			"terminated": {end: func(s *stage) { s.Envoy.Stop() }},
		} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				s := startStage(t, env, staging{
					serve: []string{"--owner-grace", grace.String()},
					print: append(c.print, "--owner-grace", grace.String()), envoy: c.envoy,
				})
				var clients sync.WaitGroup
				defer clients.Wait()
				defer s.app.LetGo()
				cut := s.fill(&clients, 5, "/five/hold")
				s.wantRenewed(5) // so the access log is connected
				if got := s.left("/five/x"); got != 0 {
					t.Errorf("%d places are left", got)
				}
				start := time.Now()
				c.end(s)
				s.wantLeft(5, "/five/x")
				t.Logf("all ended after %v, with a grace of %v", time.Since(start), grace)
				s.app.LetGo()
				clients.Wait()
				if got := cut.want(t); got.failed != 5 {
					t.Errorf("the requests that were cut off: %+v", got)
				}
				if n := s.leases("expired"); n != 0 {
					t.Errorf("%d leases were left to expire", n)
				}
			})
		}
	})
}

// TestInFlightReload: requests in flight stay so when rules change, and are
// counted under the new ones.
func TestInFlightReload(t *testing.T) {
	besides(t, func(t *testing.T, env environment) {
		s := startStage(t, env, staging{})
		var clients sync.WaitGroup
		defer clients.Wait()
		defer s.app.LetGo()
		change := func(threshold, left int) {
			t.Helper()
			byRename(t, filepath.Dir(s.rules),
				strings.Replace(inFlightRules, "threshold: 5", fmt.Sprintf("threshold: %d", threshold), 1))
			s.wantLeft(left, "/five/x")
		}
		first := s.fill(&clients, 4, "/five/hold")
		change(7, 3)
		second := s.fill(&clients, 3, "/five/hold")
		s.wantLeft(0, "/five/x")
		change(3, 0)
		var more tally
		more.add(s.try("/five/work"))
		s.app.LetGo()
		clients.Wait()
		s.wantLeft(3, "/five/x")
		a, b, c := first.want(t), second.want(t), more.want(t)
		if a.admitted != 4 || b.admitted != 3 || c.refused != 1 {
			t.Errorf("%+v before, %+v with more room, %+v with less", a, b, c)
		}
		change(5, 5)
		s.wantAllBack("/five/x")
	})
}

// TestInFlightReplicas: with two headgates on one Redis there are five places in
// all, also while one of them dies.
func TestInFlightReplicas(t *testing.T) {
	besides(t, func(t *testing.T, env environment) {
		env.backend = testenv.StartRedis(t).URL()
		s := startStage(t, env, staging{
			services: 2,
			// For the leases of those that died with it, unasked for.
			rules: inFlightRules + "  lease_ttl: 10s\n",
		})
		s.storm(40, "/five/work?ms=50")
		if most := s.app.Most(); most != 5 {
			t.Errorf("%d were inside at once, want 5", most)
		}
		s.wantAllBack("/five/x")
		for i, h := range s.services {
			if n := h.Metric("headgate_leases_total", `event="acquired"`); n == 0 {
				t.Errorf("headgate %d was not asked", i)
			}
		}

		var c tally
		var clients sync.WaitGroup
		for range 30 {
			clients.Go(func() {
				for range 8 {
					c.add(s.try("/five/work?ms=50"))
					time.Sleep(60 * time.Millisecond)
				}
			})
		}
		testenv.Eventually(t, 20*time.Second, "be in the middle of it", func() string {
			if got := c.get(); got.admitted < 5 {
				return fmt.Sprintf("%+v", got)
			}
			return ""
		})
		s.services[0].Kill()
		clients.Wait()
		s.services = s.services[1:]
		got := c.want(t)
		t.Logf("%+v", got)
		if got.admitted < 6 || got.refused == 0 {
			t.Errorf("%+v: nobody got in, or nobody was refused", got)
		}
		if most := s.app.Most(); most > 5 {
			t.Errorf("%d were inside at once", most)
		}
		s.wantLeft(5, "/five/x")
		testenv.Eventually(t, 20*time.Second, "have one headgate left", func() string { return s.healthy(1) })
		s.wantFive()
	})
}

// TestInFlightUnwanted: clients leave while headgate is being asked. Nobody
// reports the ends of their requests, so headgate takes back what it granted.
func TestInFlightUnwanted(t *testing.T) {
	besides(t, func(t *testing.T, env environment) {
		redis := testenv.StartRedis(t)
		proxy := testenv.StartProxy(t, redis.Addr)
		env.backend = "redis://" + proxy.Addr
		s := startStage(t, env, staging{serve: []string{"--backend-timeout", "10s"}})
		proxy.SetLatency(200 * time.Millisecond)
		var c tally
		var clients sync.WaitGroup
		for range 12 {
			clients.Go(func() { c.add(s.leave("/five/hold", false)) })
		}
		clients.Wait()
		proxy.SetLatency(0)
		if got := c.want(t); got.failed != 12 || s.app.Seen() != 0 {
			t.Errorf("%+v, and %d came through", got, s.app.Seen())
		}
		testenv.Eventually(t, 20*time.Second, "have leases granted that nobody wants", func() string {
			if s.leases("acquired") == 0 {
				return "none were granted"
			}
			return ""
		})
		s.wantAllBack("/five/x")
		if n := s.leases("abandoned"); n == 0 {
			t.Error("no lease was taken back")
		}
		s.wantFive()
	})
}

// TestInFlightByHits: without leases, one up and one down, there are five
// places as well, as long as every end is reported.
func TestInFlightByHits(t *testing.T) {
	besides(t, func(t *testing.T, env environment) {
		if env.envoy < "1.38" {
			args := []string{"envoy", writeFile(t, "rules.yaml", inFlightRules+"  release: hits\n"),
				"--envoy-version", env.envoy}
			command(t, nil, args...).want(t, 2, nil, []string{"Envoy can count down from 1.38 on only"})
			return
		}
		s := startStage(t, env, staging{rules: inFlightRules + "  release: hits\n"})
		s.storm(40, "/five/work?ms=50")
		if most := s.app.Most(); most > 5 {
			t.Errorf("%d were inside at once", most)
		}
		s.wantLeft(5, "/five/x")
		s.wantFive()
	})
}
