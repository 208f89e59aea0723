package compat

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/test/testenv"
)

// Each kind of Redis that the reference's variables name keeps the counters: one server
// over TLS with a login, one behind sentinels, and a Cluster. The reference reaches the latter two by TCP without
// REDIS_SOCKET_TYPE.
func TestKindsOfRedis(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 2))
	on := func(more ...string) map[string]string {
		return rules(root, append([]string{"BACKEND_TYPE", "redis"}, more...)...)
	}
	t.Run("TLS", func(t *testing.T) {
		certs := testenv.TestCerts(t)
		s := testenv.StartRedis(t, testenv.WithTLS(certs), testenv.WithClientCerts(), testenv.WithPassword("geheim"))
		env := on("REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", s.Addr, "REDIS_TLS", "true",
			"REDIS_TLS_CACERT", certs.CAFile, "REDIS_AUTH", "geheim",
			"REDIS_TLS_CLIENT_CERT", certs.Client.CertFile, "REDIS_TLS_CLIENT_KEY", certs.Client.KeyFile)
		countsIn(t, env, s.Client())
	})
	t.Run("SENTINEL", func(t *testing.T) {
		s := testenv.StartRedisSentinel(t, testenv.WithPassword("geheim"), testenv.WithSentinelPassword("posten"))
		env := on("REDIS_TYPE", "SENTINEL", "REDIS_URL", s.MasterName+","+strings.Join(s.SentinelAddrs, ","), "REDIS_AUTH",
			"geheim", "REDIS_SENTINEL_AUTH", "posten")
		countsIn(t, env, s.Client())
	})
	t.Run("CLUSTER", func(t *testing.T) {
		c := testenv.StartRedisCluster(t)
		countsIn(t, on("REDIS_TYPE", "CLUSTER", "REDIS_URL", strings.Join(c.Addrs, ",")), c.Client())
	})
}

// countsIn starts headgate under an environment, and wants a limit of two to be kept, with
// a counter in the Redis that client asks.
func countsIn(t *testing.T, env map[string]string, client redis.UniversalClient) {
	t.Helper()
	s := start(t, env)
	if got := s.codes(3, "d", "a=b"); got != "200 200 429" {
		t.Errorf("got %s; log:\n%s", got, s.Log())
	}
	var found atomic.Int64
	scan := func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, "headgate:*").Result()
		found.Add(int64(len(keys)))
		return err
	}
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(t.Context(), scan)
	case *redis.Client:
		err = scan(t.Context(), c)
	}
	if err != nil || found.Load() == 0 {
		t.Errorf("%d keys of headgate in Redis, %v; log:\n%s", found.Load(), err, s.Log())
	}
}
