package rediscache

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/test/testenv"
)

// While a master of a Cluster stands still, hashes on the others are removed.
func TestAFrozenMasterHoldsUpNoRemovalsOfOthers(t *testing.T) {
	c := testenv.StartRedisCluster(t, testenv.WithArgs("--cluster-node-timeout", "120000"))
	conf, err := redis.Parse("redis+cluster://" + strings.Join(c.Addrs, ",") + "?timeout=200ms")
	if err != nil {
		t.Fatal(err)
	}
	client, err := redis.NewClient(conf, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	cache := New(Config{Client: client, Timeout: 200 * time.Millisecond, MaxTTL: time.Hour, SyncDelay: time.Second,
		Log: slog.New(slog.DiscardHandler)})
	node, here := c.Nodes[0], 0
	for i := range 90 {
		user := fmt.Sprint("user", i)
		if err := client.HSet(t.Context(), keyPrefix+user, "a", 1).Err(); err != nil {
			t.Fatal(err)
		}
		cache.pending.addRemoval(user)
		if c.MasterFor(keyPrefix+user) == node {
			here++
		}
	}
	node.Pause()
	t.Cleanup(node.Resume)
	cache.behind(true)
	if _, left := cache.pending.size(); left != here {
		t.Errorf("%d removals are left, and %d are of the master that does not answer", left, here)
	}
}
