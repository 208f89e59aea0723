package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// latest is what tests run against that are not about Envoy's versions.
func latest(t *testing.T) environment {
	t.Helper()
	v := inFlightVersions[0]
	testenv.Require(t, "envoy-"+v)
	return environment{envoy: v, backend: "memory://"}
}

// TestInFlightStoreFailover: the master of a Redis dies in the middle of a
// storm and Sentinel promotes a replica. Every request is answered, those who
// are inside all the time are counted all the time, no place stays taken by a
// request that has ended, and no more are inside than the replica can have
// failed to hear of.
func TestInFlightStoreFailover(t *testing.T) {
	t.Parallel()
	env := latest(t)
	redis := testenv.StartRedisSentinel(t)
	env.backend = "redis+sentinel://" + strings.Join(redis.SentinelAddrs, ",") + "/" + url.PathEscape(redis.MasterName)
	s := startStage(t, env, staging{
		services: 2,
		// Nothing passes uncounted, and nothing gets better by leases that expire.
		rules:  inFlightRules + "  on_backend_error: deny\n  lease_ttl: 300s\n",
		routes: "- {match: {prefix: /}, route: {cluster: application, timeout: 0s}}",
	})
	const staying = 3
	var stayers sync.WaitGroup
	defer stayers.Wait()
	defer s.app.LetGo()
	held := s.fill(&stayers, staying, "/five/hold")
	old := redis.Master()
	wantReplicated(t, old, len(redis.Servers)-1)

	var c failoverTally
	stop := make(chan struct{})
	var clients sync.WaitGroup
	halt := sync.OnceFunc(func() { close(stop); clients.Wait() })
	defer halt()
	for range 40 {
		clients.Go(func() { c.ask(s, "/five/work?ms=50", stop) })
	}
	c.wantAdmitted(t, 20)
	old.Kill()
	killed := time.Now()
	redis.WaitNewMaster(old)
	t.Logf("there was a new master after %v, and these until then: %+v", time.Since(killed), c.get())
	c.wantAdmitted(t, 20)
	halt()
	s.wantLeft(5-staying, "/five/x")
	s.app.LetGo()
	stayers.Wait()
	ended := time.Now()
	s.wantLeft(5, "/five/x")
	t.Logf("nothing was in flight %v after the last answer", time.Since(ended))

	got, stayed := c.want(t), held.want(t)
	t.Logf("%+v, %d of the failed ones because the store was away", got, c.away)
	if got.refused == 0 || got.failed == 0 || stayed.admitted != staying {
		t.Errorf("%+v, and %+v who stayed: there was no crowd, no failure, or somebody left", got, stayed)
	}
	if c.unanswered > 0 {
		t.Errorf("%d requests were not answered: %s", c.unanswered, c.why())
	}
	if n := s.app.Seen(); n != got.admitted+staying {
		t.Errorf("%d came through, and %d were admitted", n, got.admitted+staying)
	}
	// Replication is asynchronous, and headgate does not wait for it: the new
	// master may lack the leases of those who came in last, and let as many
	// others in before those have ended. It has the leases of those who stay,
	// so there are at most two that it lacks.
	most := s.app.Most()
	t.Logf("at most %d were inside at once, %d too many", most, max(0, most-5))
	if most < 5 || most > 5+(5-staying) {
		t.Errorf("%d were inside at once, want 5, or up to %d more", most, 5-staying)
	}
	if n := s.leases("lost"); n != 0 {
		t.Errorf("%d leases were left to expire", n)
	}
	s.wantFive()
}

// wantReplicated waits until replicas have all that was written so far.
func wantReplicated(t *testing.T, master *testenv.RedisServer, replicas int) {
	t.Helper()
	conn := master.Client().Conn()
	defer conn.Close()
	// WAIT is for what its own connection wrote, and all before it.
	if err := conn.Set(t.Context(), "written", "after the rest", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Wait(t.Context(), replicas, 20*time.Second).Result(); err != nil || int(n) != replicas {
		t.Fatalf("%d of %d replicas have what was written (%v)", n, replicas, err)
	}
}

// A failoverTally also knows of refusals because the store is away, which it
// counts as failed.
type failoverTally struct {
	tally
	away       int
	unanswered int // failed without any answer
}

// ask asks for path until stop is closed.
func (c *failoverTally) ask(s *stage, path string, stop <-chan struct{}) {
	for {
		c.add(s.try(path))
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(50+rand.IntN(100)) * time.Millisecond):
		}
	}
}

func (c *failoverTally) add(a answer, err error) {
	away := err == nil && a.Rule() != "" && a.Header.Get("x-reason") == ""
	if !away {
		c.tally.add(a, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.unanswered++
	}
	if away {
		c.sent++
		c.failed++
		c.away++
	}
}

// wantAdmitted waits until n more requests were admitted.
func (c *failoverTally) wantAdmitted(t *testing.T, n int) {
	t.Helper()
	before := c.get().admitted
	testenv.Eventually(t, 60*time.Second, fmt.Sprintf("have %d more admitted", n), func() string {
		if got := c.get(); got.admitted < before+n {
			return fmt.Sprintf("%+v, there were %d before: %s", got, before, c.why())
		}
		return ""
	})
}

// TestInFlightStormGRPC is the storm on a headgate that is served by grpc-go.
func TestInFlightStormGRPC(t *testing.T) {
	s := startStage(t, latest(t), staging{serve: []string{"--transport", "grpc"}})
	s.stormOfFive(120, "/five/work?ms=40")
}
