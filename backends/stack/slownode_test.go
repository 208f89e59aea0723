package stack

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A nodeScene is a stack around a Cluster one of whose masters stands still.
type nodeScene struct {
	*testing.T
	*Stack
	here, elsewhere []string // groups on that node, and on the others
	callers         sync.WaitGroup
}

var hourly = limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1 << 30, Window: time.Hour})

// newNodeScene stops a node once every group has been asked for.
func newNodeScene(t *testing.T) (sc *nodeScene, node *testenv.RedisServer) {
	c := testenv.StartRedisCluster(t, testenv.WithArgs("--cluster-node-timeout", "120000")) // no replica steps in
	s, err := New(context.Background(), "redis+cluster://"+strings.Join(c.Addrs, ",")+"?timeout=60s&node_failures=0",
		Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	sc = &nodeScene{T: t, Stack: s}
	t.Cleanup(func() { _ = s.Close() })
	node = c.Nodes[0]
	for i := 0; len(sc.here) < 4 || len(sc.elsewhere) < 12; i++ {
		g := strconv.Itoa(i)
		if c.MasterFor("{"+g+"}") == node {
			sc.here = append(sc.here, g)
		} else {
			sc.elsewhere = append(sc.elsewhere, g)
		}
	}
	for _, g := range slices.Concat(sc.here, sc.elsewhere) {
		sc.take(time.Minute, []string{g})
	}
	node.Pause()
	t.Cleanup(node.Resume)
	return sc, node
}

// take decides requests in one Take: for each list, one with an op for each group. All must be
// decided in time.
func (sc *nodeScene) take(within time.Duration, requests ...[]string) {
	reqs, out := make([]limit.Request, len(requests)), make([]limit.Verdict, len(requests))
	for i, groups := range requests {
		for _, g := range groups {
			reqs[i].Ops = append(reqs[i].Ops, limit.Op{Key: limit.Key{Group: g, Limit: "l"}, Limit: hourly, Cost: 1})
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	sc.Backend.Take(ctx, reqs, out)
	for i := range out {
		if out[i].Err != nil || !out[i].Admitted {
			sc.Errorf("%v: %v", requests[i], out[i].Err)
		}
	}
}

// TestStoppedNodeDelaysNoOther: calls that wait for a node of a Cluster take no turn of others,
// whether these need one of the other nodes or both, and whether they come alone or many at once.
func TestStoppedNodeDelaysNoOther(t *testing.T) {
	sc, node := newNodeScene(t)
	waiting := func(requests ...[]string) { sc.callers.Go(func() { sc.take(time.Minute, requests...) }) }
	for i := range 4 * len(sc.here) {
		stopped, other := sc.here[i%len(sc.here)], sc.elsewhere[i%len(sc.elsewhere)]
		waiting([]string{stopped})
		waiting([]string{stopped, other})
		waiting([]string{stopped}, []string{other})
	}
	servers := sc.store.(backends.Partitioned).Servers()
	both := 0
	var others sync.WaitGroup
	for i := range 64 {
		a, b := sc.elsewhere[i%len(sc.elsewhere)], sc.elsewhere[(i+i/12+1)%len(sc.elsewhere)]
		req := limit.Request{Ops: []limit.Op{{Key: limit.Key{Group: a}, Limit: hourly},
			{Key: limit.Key{Group: b}, Limit: hourly}}}
		if set := servers(&req); set&(set-1) != 0 {
			both++
		}
		others.Go(func() { sc.take(20*time.Second, []string{a}) })
		others.Go(func() { sc.take(20*time.Second, []string{a, b}) })
		others.Go(func() { sc.take(20*time.Second, []string{a}, []string{b}) })
	}
	others.Wait()
	if both == 0 || both == 64 {
		t.Errorf("%d of 64 requests need both of the other nodes: some should, and some not", both)
	}
	node.Resume()
	sc.callers.Wait() // they were waiting for nothing else
}
