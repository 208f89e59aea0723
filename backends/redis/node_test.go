package redis

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// groupsOf returns groups whose counters are on node, and others.
func groupsOf(s *testenv.Cluster, b *Backend, node *testenv.RedisServer) (here, elsewhere []string) {
	for i := 0; len(here) < 3 || len(elsewhere) < 6; i++ {
		g := strconv.Itoa(i)
		if s.MasterFor(b.ownKey(limit.Key{Group: g})) == node {
			here = append(here, g)
		} else {
			elsewhere = append(elsewhere, g)
		}
	}
	return here, elsewhere
}

// eventually waits until done holds.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 3000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("timed out waiting until %s", what)
}

// freeze stops node and calls for its groups until its circuit breaker opens.
func freeze(t *testing.T, b *Backend, node *testenv.RedisServer, groups []string) {
	t.Helper()
	for _, g := range groups { // the driver has found the nodes
		if out := takeOne(b, g, 1, 10*time.Second); out.Err != nil {
			t.Fatal(out.Err)
		}
	}
	node.Pause()
	eventually(t, "the node's circuit breaker is open", func() bool {
		for _, g := range groups {
			takeOne(b, g, 1, 100*time.Millisecond)
		}
		return slices.Equal(b.Stats().NodesAway, []string{node.Addr})
	})
}

// tally makes n takes on groups in turn, eight at a time, and counts those
// that took more than half their deadline and those that errors meet.
func tally(b *Backend, groups []string, n int, deadline time.Duration, meets func(error) bool) (slow, met int64) {
	var next, late, good atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				began := time.Now()
				out := takeOne(b, groups[i%int64(len(groups))], 1, deadline)
				if time.Since(began) > deadline/2 {
					late.Add(1)
				}
				if meets(out.Err) {
					good.Add(1)
				}
			}
		})
	}
	all.Wait()
	return late.Load(), good.Load()
}

// TestFrozenNodeFailsOnlyItsSlots: while one master of a Cluster hangs, calls for its slots
// fail at once and others are not touched; when it is back, so are its slots.
func TestFrozenNodeFailsOnlyItsSlots(t *testing.T) {
	s := testenv.StartRedisCluster(t, testenv.WithArgs("--cluster-node-timeout", "120000")) // no replica steps in
	var log bytes.Buffer
	b, err := Open(context.Background(), mustParse(t, "redis+cluster://"+strings.Join(s.Addrs, ",")),
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	node := s.MasterFor(b.ownKey(limit.Key{Group: "0"}))
	here, elsewhere := groupsOf(s, b, node)
	for _, g := range append(slices.Clone(here), elsewhere...) {
		if out := takeOne(b, g, 1, 0); out.Err != nil {
			t.Fatal(out.Err)
		}
	}
	freeze(t, b, node, here)

	const n, deadline = 1000, 200 * time.Millisecond
	slow, refused := tally(b, here, n, deadline, func(err error) bool {
		return errors.Is(err, backends.ErrUnavailable) && errors.Is(err, backends.ErrNotApplied)
	})
	if slow > n/20 || refused < n-n/20 {
		t.Errorf("of %d calls for the frozen node %d were slow and %d not applied", n, slow, refused)
	}
	if slow, well := tally(b, elsewhere, n, 20*deadline, func(err error) bool { return err == nil }); slow > n/20 ||
		well < n {
		t.Errorf("of %d calls for the other nodes %d were slow and %d went well", n, slow, well)
	}
	// In a slice they do not hold each other up.
	reqs, out := make([]limit.Request, 2), make([]limit.Verdict, 2)
	for i, g := range []string{here[0], elsewhere[0]} {
		reqs[i].Ops = []limit.Op{{Key: limit.Key{Group: g, Limit: "l/sliding_log"}, Limit: testLimit, Cost: 1}}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	b.Take(ctx, reqs, out)
	if !errors.Is(out[0].Err, backends.ErrNotApplied) || !strings.Contains(out[0].Err.Error(), node.Addr) ||
		out[1].Err != nil {
		t.Errorf("in one slice: %v, %v", out[0].Err, out[1].Err)
	}
	if st := b.Stats(); st.NodeOpened < 1 || st.NodeRefused < refused {
		t.Errorf("stats %+v", st)
	}

	node.Resume()
	eventually(t, "the node is back", func() bool {
		return len(b.Stats().NodesAway) == 0 && takeOne(b, here[0], 1, time.Second).Err == nil
	})
	if err := b.Ping(ctx); err != nil {
		t.Error(err)
	}
	opened := int(b.Stats().NodeOpened)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	fails, back := strings.Count(log.String(), "node failing"), strings.Count(log.String(), "node answers again")
	if fails != opened || back != opened || opened > 100 {
		t.Errorf("opened %d times, logged %d times, and %d that it is back:\n%s", opened, fails, back, log.String())
	}
}

// TestFrozenNodeFailsOver: a replica that becomes the master is not blocked by
// what is known of the one before.
func TestFrozenNodeFailsOver(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	b := open(t, "redis+cluster://"+strings.Join(s.Addrs, ","))
	node := s.MasterFor(b.ownKey(limit.Key{Group: "0"}))
	here, _ := groupsOf(s, b, node)
	freeze(t, b, node, here)
	s.WaitNewMaster(b.ownKey(limit.Key{Group: "0"}), node)
	eventually(t, "the new master is asked", func() bool {
		slow, well := tally(b, here, 30, time.Second, func(err error) bool { return err == nil })
		return slow == 0 && well == 30
	})
	node.Resume()
	eventually(t, "no circuit breaker is open", func() bool {
		_, well := tally(b, here, 30, time.Second, func(err error) bool { return err == nil })
		return len(b.Stats().NodesAway) == 0 && well == 30
	})
}

// TestCloseWhileAway: what runs for a node ends with the backend.
func TestCloseWhileAway(t *testing.T) {
	s := testenv.StartRedisCluster(t)
	b := openURL(t, "redis+cluster://"+strings.Join(s.Addrs, ",")+"?node_failures=1")
	node := s.MasterFor(b.ownKey(limit.Key{Group: "0"}))
	freeze(t, b, node, []string{"0"})
	ended := make(chan error, 1)
	go func() { ended <- b.Close() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Close does not return")
	}
	if len(b.nodes.away) != 1 {
		t.Errorf("%d nodes are away", len(b.nodes.away))
	}
	for n := range b.nodes.away {
		before := n.circuit.Counts()
		time.Sleep(5 * nodeDelay)
		if after := n.circuit.Counts(); after != before {
			t.Errorf("it goes on after Close: %+v, then %+v", before, after)
		}
	}
}

// TestNodeFailuresOff: zero failures are for never leaving a node alone.
func TestNodeFailuresOff(t *testing.T) {
	b := open(t, "redis+cluster://127.0.0.1:1?node_failures=0&timeout=50ms")
	for range 10 {
		takeOne(b, "", 1, 0)
	}
	if st := b.Stats(); st.NodeOpened+st.NodeRefused != 0 {
		t.Errorf("stats %+v", st)
	}
}

// TestServersAreTheNodesOfTheSlots: once they have been called, groups have the same server if
// and only if their slots are on one node, also after the slots have moved to another.
func TestServersAreTheNodesOfTheSlots(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	b := open(t, "redis+cluster://"+strings.Join(s.Addrs, ",")+"?node_failures=0")
	request := func(groups ...string) *limit.Request {
		req := &limit.Request{}
		for _, g := range groups {
			req.Ops = append(req.Ops, limit.Op{Key: limit.Key{Group: g}, Limit: testLimit, Cost: 1})
		}
		return req
	}
	groups := []string{"0", "1", "2", "3", "4", "5", "6", "7"}
	servers := b.Servers()
	if set := servers(request("0")); set != backends.AnyServer {
		t.Errorf("before the first call: %b", set)
	}
	check := func(why string) {
		t.Helper()
		all, masters := map[uint64]*testenv.RedisServer{}, map[*testenv.RedisServer]bool{}
		for _, g := range groups {
			eventually(t, why, func() bool { return takeOne(b, g, 1, time.Second).Err == nil })
			set, master := servers(request(g)), s.MasterFor(b.ownKey(limit.Key{Group: g}))
			if known, ok := all[set]; set&(set-1) != 0 || ok && known != master || !ok && masters[master] {
				t.Errorf("%s: group %s on %s has the servers %b; known are %v", why, g, master.Addr, set, all)
			}
			all[set], masters[master] = master, true
		}
		a, b := servers(request("0")), servers(request("1"))
		if both := servers(request("0", "1")); both != a|b || a == b {
			t.Errorf("%s: two groups have the servers %b, apart %b and %b", why, both, a, b)
		}
	}
	check("at first")
	key := b.ownKey(limit.Key{Group: "0"})
	old, before := s.MasterFor(key), servers(request("0"))
	old.Kill()
	s.WaitNewMaster(key, old)
	check("after a failover")
	if servers(request("0")) == before {
		t.Error("the new master has the number of the old one")
	}
	if open(t, "redis://127.0.0.1:1").Servers() != nil {
		t.Error("a single server has no parts")
	}
}
