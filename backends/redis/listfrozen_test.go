package redis

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// While a master of a Cluster stands still, the keys of the others can be listed.
func TestAFrozenMasterHidesNoKeysOfOthers(t *testing.T) {
	c := testenv.StartRedisCluster(t, testenv.WithArgs("--cluster-node-timeout", "120000"))
	b := open(t, "redis+cluster://"+strings.Join(c.Addrs, ",")+"?timeout=300ms")
	node, want := c.Nodes[0], 0
	for i := range 60 {
		g := strconv.Itoa(i)
		if v := takeOne(b, g, 1, 5*time.Second); v.Err != nil {
			t.Fatal(v.Err)
		}
		if c.MasterFor("{"+g+"}") != node {
			want++
		}
	}
	node.Pause()
	t.Cleanup(node.Resume)
	found, after := map[string]bool{}, ""
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		keys, next, err := b.List(ctx, after, 100)
		cancel()
		for _, k := range keys {
			found[k.Group] = true
		}
		if err != nil {
			t.Logf("after %q: %v; to go on at %q", after, err, next)
		}
		after = next
		if next == "" {
			break
		}
	}
	if len(found) < want {
		t.Errorf("%d keys are listed, and other masters have %d", len(found), want)
	}
}
