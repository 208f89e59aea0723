package stack

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/backends/layers/coalesce"
	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestClusterKeepsTheContractApart runs the suite on a Cluster whose nodes have slices of their
// own, as in a stack.
func TestClusterKeepsTheContractApart(t *testing.T) {
	c := testenv.StartRedisCluster(t)
	conf, err := redis.Parse("redis+cluster://" + strings.Join(c.Addrs, ",") + "?timeout=10s")
	if err != nil {
		t.Fatal(err)
	}
	var store *redis.Backend
	backendtest.Run(t, backendtest.Suite{
		Caps: conf.Caps(), Rounds: 10, Shared: true, Short: true,
		Open: func(tb testing.TB) backends.Backend {
			if store, err = redis.Open(context.Background(), conf, nil); err != nil {
				tb.Fatal(err)
			}
			return coalesce.New(store, coalesce.Config{Servers: store.Servers(), Timeout: 10 * time.Second})
		},
		Settle: func(tb testing.TB, _ backends.Backend) {
			pending := func(f backends.Figure) bool { return f.Name == "headgate_redis_refunds_pending" && f.Value() > 0 }
			testenv.Eventually(tb, 10*time.Second, "have given everything back", func() string {
				if slices.ContainsFunc(store.Figures(), pending) {
					return "refunds are pending"
				}
				return ""
			})
		},
	})
}
