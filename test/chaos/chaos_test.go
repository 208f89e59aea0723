//go:build chaos

package chaos

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// full is for a machine that does nothing else.
func full(transport string) style {
	return style{
		transport: transport, start: startService, deadline: 100 * time.Millisecond,
		pause: 10 * time.Millisecond, burst: 3,
		// With about 50 calls a second for each key, the load uses up the first
		// limit before the fault, the second about when it begins and the third
		// while it lasts or after it.
		limits: []int{45, 150, 240},
		before: 2500 * time.Millisecond, outage: 3 * time.Second, after: 4 * time.Second,
		recoverIn: 2 * time.Second, recoverBusy: 3 * time.Second,
		// Were one replica to hang for an outage, it would be about 10.
		maxNoise: 5,
	}
}

// TestAnswersGoOnWithoutTheBackend takes the backend away under load.
func TestAnswersGoOnWithoutTheBackend(t *testing.T) {
	idleAddr := testenv.StartIdle(t)
	for _, c := range []struct {
		name  string
		start func(*testing.T) scene
		both  bool // on either transport
	}{
		{"killed and restarted empty", restartedEmpty, true},
		{"stopped", stopped, true},
		{"latency", slow, false},
		{"half of the bytes late", halvesLate, true},
		{"connections cut", cut, true},
		{"made a replica", madeReplica, false},
		{"sentinel failover", sentinelFailover, false},
		{"cluster master killed", clusterMasterKilled, false},
		{"cluster master stopped", clusterMasterStopped, true},
	} {
		t.Run(c.name, func(t *testing.T) { play(t, full("unary"), c.start(t), idleAddr) })
		if c.both {
			t.Run(c.name+", grpc-go", func(t *testing.T) { play(t, full("grpc"), c.start(t), idleAddr) })
		}
	}
	t.Run("clocks apart", func(t *testing.T) {
		style := full("unary")
		style.start = wrongClocks(t)
		play(t, style, stopped(t), idleAddr)
	})
}

// slow has a Redis that gets every command, and acts on it, 5 s late: those of
// the outage too, when it is over.
func slow(t *testing.T) scene {
	redis := testenv.StartRedis(t)
	proxy := testenv.StartProxy(t, redis.Addr)
	return scene{url: "redis://" + proxy.Addr, spared: true, fault: func(outage time.Duration) time.Time {
		proxy.SetLatency(5 * time.Second)
		time.Sleep(outage)
		proxy.SetLatency(0)
		return time.Now()
	}}
}

// halvesLate has commands and replies of which the second half comes 5 s after
// the first: connections that are alive and of no use.
func halvesLate(t *testing.T) scene {
	redis := testenv.StartRedis(t)
	proxy := testenv.StartProxy(t, redis.Addr)
	return scene{url: "redis://" + proxy.Addr, spared: true, fault: func(outage time.Duration) time.Time {
		proxy.SetSplit(5 * time.Second)
		time.Sleep(outage)
		proxy.SetSplit(0)
		return time.Now()
	}}
}

// cut resets connections repeatedly. With some latency there are always
// commands under way then, and replies to come.
func cut(t *testing.T) scene {
	redis := testenv.StartRedis(t)
	proxy := testenv.StartProxy(t, redis.Addr)
	return scene{url: "redis://" + proxy.Addr, flapping: true, fault: func(outage time.Duration) time.Time {
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
	return scene{url: redis.URL(), losses: 1, fault: func(outage time.Duration) time.Time {
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
	return scene{url: "redis+sentinel://" + strings.Join(s.SentinelAddrs, ",") + "/" + url.PathEscape(s.MasterName),
		losses: 1, fault: func(time.Duration) time.Time {
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
	return scene{url: "redis+cluster://" + strings.Join(c.Addrs, ","), losses: 1, spared: true, part: true,
		fault: func(time.Duration) time.Time {
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
	testenv.Eventually(t, 20*time.Second, "have "+server.Addr+" say "+want, func() string {
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
