//go:build chaos

package chaos

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/testenv"
)

// How long the load runs before a fault, and at least after one.
const (
	before = 2500 * time.Millisecond
	after  = 4 * time.Second
	outage = 3 * time.Second
)

// A scene is a backend and what happens to it.
type scene struct {
	url string
	// fault does its worst and returns when the backend is back, as near to
	// that as can be told from here.
	fault func() (back time.Time)
	// losses is how often Redis loses writes that it has acknowledged. Limits
	// then begin anew.
	losses int
	// flapping says that the backend goes and comes more than once.
	flapping bool
}

// TestBackend takes the backend away under load.
func TestBackend(t *testing.T) {
	idleAddr := startNothing(t)
	for _, c := range []struct {
		name  string
		start func(*testing.T) scene
	}{
		{"killed and restarted empty", restartedEmpty},
		{"stopped", stopped},
		{"latency", slow},
		{"connections cut", cut},
		{"made a replica", madeReplica},
		{"sentinel failover", sentinelFailover},
		{"cluster master killed", clusterMasterKilled},
		{"cluster master stopped", clusterMasterStopped},
	} {
		t.Run(c.name, func(t *testing.T) { play(t, c.start(t), idleAddr) })
	}
}

func restartedEmpty(t *testing.T) scene {
	redis := testenv.StartRedis(t)
	return scene{url: redis.URL(), losses: 1, fault: func() time.Time {
		redis.Kill()
		time.Sleep(outage)
		redis.Restart()
		return time.Now()
	}}
}

// stopped has connections that stay open and do not answer.
func stopped(t *testing.T) scene {
	redis := testenv.StartRedis(t)
	return scene{url: redis.URL(), fault: func() time.Time {
		redis.Pause()
		time.Sleep(outage)
		redis.Resume()
		return time.Now()
	}}
}

// slow has a Redis that gets every command, and acts on it, 5 s late: those of
// the outage too, when it is over.
func slow(t *testing.T) scene {
	redis := testenv.StartRedis(t)
	proxy := testenv.StartProxy(t, redis.Addr)
	return scene{url: "redis://" + proxy.Addr, fault: func() time.Time {
		proxy.SetLatency(5 * time.Second)
		time.Sleep(outage)
		proxy.SetLatency(0)
		return time.Now()
	}}
}

// cut resets connections again and again. With some latency there are always
// commands under way then, and replies to come.
func cut(t *testing.T) scene {
	redis := testenv.StartRedis(t)
	proxy := testenv.StartProxy(t, redis.Addr)
	return scene{url: "redis://" + proxy.Addr, flapping: true, fault: func() time.Time {
		proxy.SetLatency(10 * time.Millisecond)
		for end := time.Now().Add(outage); time.Now().Before(end); {
			proxy.Cut()
			time.Sleep(20 * time.Millisecond)
		}
		proxy.SetLatency(0)
		return time.Now()
	}}
}

// madeReplica has a Redis that answers, but refuses to write. Becoming the
// replica of an empty server empties it.
func madeReplica(t *testing.T) scene {
	redis, other := testenv.StartRedis(t), testenv.StartRedis(t, testenv.WithArgs("--repl-diskless-sync-delay", "0"))
	client := redis.Client()
	become := func(host, port string) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := client.Do(ctx, "replicaof", host, port).Err(); err != nil {
			t.Fatalf("REPLICAOF %s %s: %v", host, port, err)
		}
	}
	return scene{url: redis.URL(), losses: 1, fault: func() time.Time {
		end := time.Now().Add(outage)
		become("127.0.0.1", strconv.Itoa(other.Port))
		waitInfo(t, redis, "replication", "master_link_status:up")
		time.Sleep(time.Until(end))
		become("NO", "ONE")
		return time.Now()
	}}
}

// sentinelFailover may lose what the replica had not got yet.
func sentinelFailover(t *testing.T) scene {
	s := testenv.StartRedisSentinel(t)
	return scene{url: "redis+sentinel://" + strings.Join(s.SentinelAddrs, ",") + "/" + url.PathEscape(s.MasterName), losses: 1, fault: func() time.Time {
		old := s.Master()
		old.Kill()
		s.WaitNewMaster(old)
		return time.Now()
	}}
}

func clusterMasterKilled(t *testing.T) scene {
	return clusterWithout(t, (*testenv.RedisServer).Kill, func(*testenv.RedisServer) {})
}

// clusterMasterStopped has a node whose connections stay open and do not
// answer. Its replica takes over while it is stopped, and what was written to it
// alone is lost when it comes back.
func clusterMasterStopped(t *testing.T) scene {
	return clusterWithout(t, (*testenv.RedisServer).Pause, (*testenv.RedisServer).Resume)
}

// clusterWithout takes the master of some slots away until its replica has
// taken over.
func clusterWithout(t *testing.T, take, giveBack func(*testenv.RedisServer)) scene {
	const key = "any" // some slot's master, whichever
	c := testenv.StartRedisCluster(t)
	return scene{url: "redis+cluster://" + strings.Join(c.Addrs, ","), losses: 1, fault: func() time.Time {
		old := c.MasterFor(key)
		take(old)
		c.WaitNewMaster(key, old)
		waitClusterUp(t, c, old)
		back := time.Now()
		giveBack(old)
		return back
	}}
}

// waitClusterUp waits until all nodes but one see all slots served. The last to
// hear of a new master hears of it a good while after the first.
func waitClusterUp(t *testing.T, c *testenv.Cluster, dead *testenv.RedisServer) {
	t.Helper()
	for _, node := range c.Nodes {
		if node == dead {
			continue
		}
		waitInfo(t, node, "cluster", "cluster_state:ok")
	}
}

// waitInfo waits until a section of what a server says of itself has a line.
func waitInfo(t *testing.T, server *testenv.RedisServer, section, want string) {
	t.Helper()
	client := server.Client()
	eventually(t, 20*time.Second, "have "+server.Addr+" say "+want, func() string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ask := func() (string, error) { return client.Info(ctx, section).Result() }
		if section == "cluster" { // INFO says less
			ask = func() (string, error) { return client.ClusterInfo(ctx).Result() }
		}
		info, err := ask()
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(info, want) {
			return info
		}
		return ""
	})
}

// play runs the load through a fault and looks at what came of it.
func play(t *testing.T, s scene, idleAddr string) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules()), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &run{scene: s}
	for range replicas {
		r.services = append(r.services, startService(t, "--rules", file, "--backend", s.url, "--replicas", strconv.Itoa(replicas)))
	}
	l := startLoad(t, r.services, idleAddr)
	time.Sleep(before)
	sizes := r.sizes(t)
	r.faulted = time.Now()
	r.back = s.fault()
	time.Sleep(after)
	r.wantSizes(t, sizes)
	l.end()
	r.calls = l.calls
	r.listen()

	r.wantTimes(t)
	r.wantPolicies(t)
	r.wantLimits(t)
	r.wantRecovery(t)
}
