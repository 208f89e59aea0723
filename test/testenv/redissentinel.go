package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	sentinelReplicas = 2
	sentinelCount    = 3
	sentinelQuorum   = 2
	sentinelMaster   = "mymaster"
)

// Sentinel is a Redis master with 2 replicas, watched by 3 sentinels of which 2
// must agree. A master is given up after half a second.
type Sentinel struct {
	MasterName string
	// SentinelAddrs are the addresses of Sentinels.
	SentinelAddrs []string
	Sentinels     []*RedisServer
	// Servers are the first master and its replicas. Roles change: ask Master.
	Servers []*RedisServer

	Password         string // of Servers
	SentinelPassword string // of Sentinels

	tb TB
}

// StartRedisSentinel starts the servers and waits until every sentinel knows
// both replicas and the other sentinels.
func StartRedisSentinel(tb TB, opts ...RedisOption) *Sentinel {
	tb.Helper()
	binary := Require(tb, RedisSentinel)
	config := newRedisConfig(opts)
	if config.flavour != Redis {
		binary = Require(tb, config.flavour)
	}
	if config.tls != nil || len(config.acl) > 0 {
		tb.Fatalf("testenv: sentinels take neither TLS nor ACL")
	}
	s := &Sentinel{MasterName: sentinelMaster, Password: config.password,
		SentinelPassword: config.sentinelPassword, tb: tb}

	config.args = append([]string{"--repl-diskless-sync-delay", "0"}, config.args...)
	if config.password != "" {
		config.args = append(config.args, "--masterauth", config.password)
	}
	master := startRedisServer(tb, binary, config)
	s.Servers = append(s.Servers, master)
	for range sentinelReplicas {
		r := config
		r.args = append([]string{"--replicaof", fmt.Sprintf("127.0.0.1 %d", master.Port)}, config.args...)
		s.Servers = append(s.Servers, startRedisServer(tb, binary, r))
	}
	for range sentinelCount {
		w := s.startSentinel(binary, master)
		s.Sentinels = append(s.Sentinels, w)
		s.SentinelAddrs = append(s.SentinelAddrs, w.Addr)
	}
	for _, w := range s.Sentinels {
		want := fmt.Sprintf("status=ok,address=%s,slaves=%d,sentinels=%d", master.Addr, sentinelReplicas, sentinelCount)
		err := waitFor(clusterStartLimit, "wait for the sentinel on "+w.Addr+" to know the others",
			func() (bool, string, error) {
				info, err := askRedis(w, func(ctx context.Context, r *redis.Client) (string, error) {
					return r.Info(ctx, "sentinel").Result()
				})
				if err != nil {
					return false, err.Error(), nil
				}
				return strings.Contains(info, want), info, nil
			})
		if err != nil {
			tb.Fatalf("testenv: %v", err)
		}
	}
	ran(tb, RedisSentinel, master.Version)
	if config.flavour != Redis {
		ran(tb, config.flavour, master.Version)
	}
	return s
}

func (s *Sentinel) startSentinel(binary string, master *RedisServer) *RedisServer {
	tb := s.tb
	tb.Helper()
	w := &RedisServer{tb: tb, binary: binary, dir: tb.TempDir(), Version: master.Version, Password: s.SentinelPassword}
	w.launch("+monitor master "+sentinelMaster, func(port int) []string {
		lines := []string{
			fmt.Sprintf("port %d", port),
			"bind 127.0.0.1",
			"dir " + w.dir,
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", sentinelMaster, master.Port, sentinelQuorum),
			fmt.Sprintf("sentinel down-after-milliseconds %s 500", sentinelMaster),
			fmt.Sprintf("sentinel failover-timeout %s 3000", sentinelMaster),
			fmt.Sprintf("sentinel parallel-syncs %s 1", sentinelMaster),
		}
		if s.Password != "" {
			lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", sentinelMaster, s.Password))
		}
		if s.SentinelPassword != "" {
			lines = append(lines, "requirepass "+s.SentinelPassword, "sentinel sentinel-pass "+s.SentinelPassword)
		}
		// A sentinel keeps what it learns in its configuration file, and takes
		// no settings from the command line.
		file := filepath.Join(w.dir, "sentinel.conf")
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			tb.Fatalf("testenv: write the configuration of a sentinel: %v", err)
		}
		return []string{file, "--sentinel"}
	})
	return w
}

// Client returns a client that follows the master and is closed by the test's
// cleanup.
func (s *Sentinel) Client() *redis.Client {
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:       s.MasterName,
		SentinelAddrs:    s.SentinelAddrs,
		SentinelPassword: s.SentinelPassword,
		Password:         s.Password,
	})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Master returns the server that the sentinels now call the master.
func (s *Sentinel) Master() *RedisServer {
	s.tb.Helper()
	m, err := s.master()
	if err != nil {
		s.tb.Fatalf("testenv: %v", err)
	}
	return m
}

// WaitNewMaster waits until the sentinels call another server than old the
// master, and that server takes itself for it too.
func (s *Sentinel) WaitNewMaster(old *RedisServer) *RedisServer {
	s.tb.Helper()
	var found *RedisServer
	err := waitFor(failoverLimit, "wait for a new master", func() (bool, string, error) {
		m, err := s.master()
		if err != nil {
			return false, err.Error(), nil
		}
		if m == old {
			return false, "it is still " + m.Addr, nil
		}
		role, err := askRedis(m, func(ctx context.Context, r *redis.Client) (string, error) {
			return r.Info(ctx, "replication").Result()
		})
		if err != nil {
			return false, err.Error(), nil
		}
		found = m
		return strings.Contains(role, "role:master"), m.Addr + " is chosen but still a replica", nil
	})
	if err != nil {
		s.tb.Fatalf("testenv: %v", err)
	}
	return found
}

// master asks one sentinel after the other and takes the answer that most give.
func (s *Sentinel) master() (*RedisServer, error) {
	votes := map[string]int{}
	best := ""
	var errs []error
	for _, w := range s.Sentinels {
		addr, err := askRedis(w, func(ctx context.Context, r *redis.Client) ([]string, error) {
			return r.Do(ctx, "sentinel", "get-master-addr-by-name", s.MasterName).StringSlice()
		})
		if err != nil || len(addr) != 2 {
			errs = append(errs, err)
			continue
		}
		a := addr[0] + ":" + addr[1]
		if votes[a]++; votes[a] > votes[best] {
			best = a
		}
	}
	for _, m := range s.Servers {
		if m.Addr == best {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no sentinel names one of the servers as master (named: %q): %w", best, errors.Join(errs...))
}
