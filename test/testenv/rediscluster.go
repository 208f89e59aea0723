package testenv

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clusterMasters    = 3
	clusterReplicas   = 3
	clusterSlots      = 16384
	clusterStartLimit = 30 * time.Second
	failoverLimit     = 30 * time.Second
)

// Cluster is a Redis Cluster of 3 masters with one replica each.
type Cluster struct {
	// Nodes are the first masters, then their replicas in the same order. Roles
	// change when masters die: ask MasterFor.
	Nodes []*RedisServer
	// Addrs are the addresses of Nodes.
	Addrs []string

	tb TB
}

// StartRedisCluster starts a cluster and waits until every node sees all slots
// served and every replica is in step. Failing nodes are noticed after two
// seconds; as by default in Redis the whole cluster refuses commands while slots
// have no master, unless changed by WithArgs.
func StartRedisCluster(tb TB, opts ...RedisOption) *Cluster {
	tb.Helper()
	binary := Require(tb, RedisCluster)
	config := newRedisConfig(opts)
	if config.flavour != Redis {
		binary = Require(tb, config.flavour)
	}
	if config.tls != nil || len(config.acl) > 0 || config.sentinelPassword != "" {
		tb.Fatalf("testenv: a cluster takes neither TLS nor ACL nor a password for sentinels")
	}
	extra := config.args
	config.args = []string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-announce-ip", "127.0.0.1",
		"--cluster-node-timeout", "2000",
		// Without a limit on how old a replica's data may be, a failover after
		// a long pause happens too.
		"--cluster-replica-validity-factor", "0",
		"--repl-diskless-sync-delay", "0",
	}
	if config.password != "" {
		config.args = append(config.args, "--masterauth", config.password)
	}
	config.args = append(config.args, extra...)

	c := &Cluster{tb: tb}
	for range clusterMasters + clusterReplicas {
		s := startRedisServer(tb, binary, config)
		c.Nodes = append(c.Nodes, s)
		c.Addrs = append(c.Addrs, s.Addr)
	}
	if err := c.form(); err != nil {
		tb.Fatalf("testenv: form the cluster: %v", err)
	}
	ran(tb, RedisCluster, c.Nodes[0].Version)
	if config.flavour != Redis {
		ran(tb, config.flavour, c.Nodes[0].Version)
	}
	return c
}

// form makes one cluster of the separate nodes.
func (c *Cluster) form() error {
	ids := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		var err error
		ids[i], err = askRedis(s, func(ctx context.Context, r *redis.Client) (string, error) {
			// Different epochs from the start, or the nodes have to settle
			// conflicts first.
			if err := r.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
				return "", err
			}
			if i < clusterMasters {
				first, last := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1
				if err := r.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
					return "", err
				}
			}
			return r.Do(ctx, "cluster", "myid").Text()
		})
		if err != nil {
			return err
		}
	}
	err := c.everyNode("know all nodes", func(ctx context.Context, r *redis.Client) (bool, string, error) {
		nodes, err := r.ClusterNodes(ctx).Result()
		if err != nil {
			return false, "", err
		}
		// On a busy machine the servers can give up a handshake, so this asks for it
		// again. While one is under way, another MEET does nothing.
		known := true
		for i, id := range ids {
			if !strings.Contains(nodes, id) {
				known = false
				if err := r.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(c.Nodes[i].Port)).Err(); err != nil {
					return false, nodes, err
				}
			}
		}
		if !known {
			return false, nodes, nil
		}
		return !strings.Contains(nodes, "handshake"), nodes, nil
	})
	if err != nil {
		return err
	}
	for i, s := range c.Nodes[clusterMasters:] {
		_, err := askRedis(s, func(ctx context.Context, r *redis.Client) (string, error) {
			return r.ClusterReplicate(ctx, ids[i]).Result()
		})
		if err != nil {
			return err
		}
	}
	return c.everyNode("be in order", func(ctx context.Context, r *redis.Client) (bool, string, error) {
		info, err := r.ClusterInfo(ctx).Result()
		if err != nil || !strings.Contains(info, "cluster_state:ok") {
			return false, info, err
		}
		nodes, err := r.ClusterNodes(ctx).Result()
		if err != nil || strings.Count(nodes, "slave ") != clusterReplicas {
			return false, nodes, err
		}
		replication, err := r.Info(ctx, "replication").Result()
		if err != nil || strings.Contains(replication, "master_link_status:down") {
			return false, replication, err
		}
		return true, "", nil
	})
}

// everyNode waits until check holds on each node.
func (c *Cluster) everyNode(what string, check func(context.Context, *redis.Client) (bool, string, error)) error {
	deadline := time.Now().Add(clusterStartLimit)
	for _, s := range c.Nodes {
		err := waitFor(time.Until(deadline), "wait for "+s.Addr+" to "+what, func() (bool, string, error) {
			state := ""
			done, err := askRedis(s, func(ctx context.Context, r *redis.Client) (done bool, err error) {
				done, state, err = check(ctx, r)
				return done, err
			})
			if err != nil {
				// A replica that loads its first data refuses some commands.
				return false, err.Error(), nil
			}
			return done, state, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Client returns a cluster client that is closed by the test's cleanup.
func (c *Cluster) Client() *redis.ClusterClient {
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs, Password: c.Nodes[0].Password})
	c.tb.Cleanup(func() { _ = r.Close() })
	return r
}

// MasterFor returns the node that is now master of the key's slot. It fails the
// test if no node that answers says so.
func (c *Cluster) MasterFor(key string) *RedisServer {
	c.tb.Helper()
	s, err := c.masterFor(key)
	if err != nil {
		c.tb.Fatalf("testenv: %v", err)
	}
	return s
}

// WaitNewMaster waits until a node other than old is master of the key's slot
// and returns it.
func (c *Cluster) WaitNewMaster(key string, old *RedisServer) *RedisServer {
	c.tb.Helper()
	var found *RedisServer
	err := waitFor(failoverLimit, "wait for a new master of "+strconv.Quote(key), func() (bool, string, error) {
		s, err := c.masterFor(key)
		if err != nil {
			return false, err.Error(), nil
		}
		found = s
		return s != old, "it is still " + s.Addr, nil
	})
	if err != nil {
		c.tb.Fatalf("testenv: %v", err)
	}
	return found
}

// masterFor asks every node for itself only, since what nodes think of each
// other is out of date around a failover. Of several that claim the slot (a dead
// master that came back) the one with the highest epoch is right.
func (c *Cluster) masterFor(key string) (*RedisServer, error) {
	type claim struct {
		epoch int
		mine  bool
		err   error
	}
	claims := make([]claim, len(c.Nodes))
	var wait sync.WaitGroup
	for i, s := range c.Nodes {
		wait.Go(func() {
			_, claims[i].err = askRedis(s, func(ctx context.Context, r *redis.Client) (int, error) {
				slot, err := r.ClusterKeySlot(ctx, key).Result()
				if err != nil {
					return 0, err
				}
				nodes, err := r.ClusterNodes(ctx).Result()
				if err != nil {
					return 0, err
				}
				claims[i].epoch, claims[i].mine, err = ownsSlot(nodes, int(slot))
				return 0, err
			})
		})
	}
	wait.Wait()
	best, errs := -1, []error(nil)
	for i, cl := range claims {
		errs = append(errs, cl.err)
		if cl.err == nil && cl.mine && (best < 0 || cl.epoch > claims[best].epoch) {
			best = i
		}
	}
	if best < 0 {
		return nil, fmt.Errorf("no node of the cluster claims the slot of %q: %w", key, errors.Join(errs...))
	}
	return c.Nodes[best], nil
}

// ownsSlot reads the answer of CLUSTER NODES: does the node that gave it claim
// to be the slot's master, and at what epoch?
func ownsSlot(nodes string, slot int) (epoch int, owns bool, err error) {
	for line := range strings.Lines(nodes) {
		// id address flags master ping pong epoch link slots...
		f := strings.Fields(line)
		if len(f) < 8 || !strings.Contains(f[2], "myself") {
			continue
		}
		epoch, err := strconv.Atoi(f[6])
		if err != nil {
			return 0, false, fmt.Errorf("the epoch in %q is no number", line)
		}
		if !strings.Contains(f[2], "master") {
			return epoch, false, nil
		}
		for _, r := range f[8:] {
			first, last, isRange := strings.Cut(r, "-")
			if strings.HasPrefix(r, "[") { // a slot on its way elsewhere
				continue
			}
			if !isRange {
				last = first
			}
			lo, errLo := strconv.Atoi(first)
			hi, errHi := strconv.Atoi(last)
			if errLo != nil || errHi != nil {
				return 0, false, fmt.Errorf("the slots in %q are no range", line)
			}
			if lo <= slot && slot <= hi {
				return epoch, true, nil
			}
		}
		return epoch, false, nil
	}
	return 0, false, fmt.Errorf("the answer of CLUSTER NODES lacks the node itself: %q", nodes)
}
