package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestWindowsOnAClusterDecideAsMemory compares random slices over all nodes with what memory decides at the instants
// that the nodes say.
func TestWindowsOnAClusterDecideAsMemory(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	u := "redis+cluster://" + strings.Join(s.Addrs, ",") + "?timeout=10s"
	counting, script, model := open(t, u), open(t, u), memory.New(memory.Config{})
	script.counts = nil // another replica, which takes part
	m := &sliceMaker{Rand: random.Rand(t, 18), t: t}
	for round := range random.Times(1500, 30000) {
		m.mixed = round%3 == 0
		reqs, b := m.windowSlice(), counting
		for i := range reqs {
			group := fmt.Sprint("1:m", m.IntN(6)) // a request is decided at one instant if it is on one node
			for j := range reqs[i].Ops {
				reqs[i].Ops[j].Key.Group = group
			}
		}
		if m.IntN(8) == 0 {
			b = script
		}
		got := take(t, b, reqs...)
		for i := range reqs {
			reqs[i].At = got[i].At
		}
		want := take(t, model, reqs...)
		for i := range reqs {
			if got[i].Err != nil || !sameVerdict(&got[i], &want[i]) {
				t.Fatalf("round %d, %+v:\nRedis:  %+v\nmemory: %+v", round, reqs[i], got[i], want[i])
			}
		}
	}
	if n := counting.counted.Load(); n < 300 {
		t.Errorf("only %d slices were counted without the script", n)
	}
	for _, n := range s.Nodes[:3] {
		wantLives(t, n.Client())
	}
}

// eachOf is a request that charges each of some groups by itself.
func eachOf(t *testing.T, most int64, groups ...string) limit.Request {
	var req limit.Request
	for _, g := range groups {
		op := one(t, g, most, 1, time.Hour, limit.Refuse).Ops[0]
		op.Key.Group, op.Each = g, true
		req.Ops = append(req.Ops, op)
	}
	return req
}

// What one node counts beside a limit of another that refuses is said as it is, also by the first refusal.
func TestWindowsOnAClusterBesideARefusal(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	b := open(t, "redis+cluster://"+strings.Join(s.Addrs, ",")+"?timeout=10s")
	here, elsewhere := groupsOf(s, b, s.Nodes[0])
	req := eachOf(t, 20, here[0], elsewhere[0])
	req.Ops[1].Limit = eachOf(t, 5, elsewhere[0]).Ops[0].Limit
	for i := range int64(9) {
		v := take(t, b, req)[0]
		if v.Err != nil || v.Admitted != (i < 5) || v.Outcomes[0].Remaining != 19-i {
			t.Errorf("take %d: %+v", i, v)
		}
	}
}

// A request whose limits are charged each needs one trip to each node, and no script.
func TestWindowsOnAClusterThatAreChargedEach(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	b := open(t, "redis+cluster://"+strings.Join(s.Addrs, ",")+"?timeout=10s")
	here, elsewhere := groupsOf(s, b, s.Nodes[0])
	req := eachOf(t, 9, here[0], here[1], elsewhere[0], elsewhere[1])
	for i := range int64(12) {
		v := take(t, b, req)[0]
		if v.Err != nil || v.Admitted != (i < 9) || v.Outcomes[0].Remaining != max(8-i, 0) ||
			v.Outcomes[3].Remaining != max(8-i, 0) {
			t.Errorf("%d: %+v", i, v)
		}
	}
	// The first asks the script, eight are counted, and of those that have no room the first is tried.
	if n := b.counted.Load(); n != 9 {
		t.Errorf("%d slices were counted without the script, want 9", n)
	}
	// A limit that is charged together with another one stays a state, which the script reads sooner.
	both := eachOf(t, 9, "together", elsewhere[2])
	both.Ops[0].Each, both.Ops[1].Each = false, false
	take(t, b, both)
	if n, err := s.Client().StrLen(t.Context(), b.ownKey(both.Ops[0].Key)).Result(); err != nil || n != 28 {
		t.Errorf("its value has %d bytes, %v", n, err)
	}
}

// TestWindowsWhoseSlotMoves: while a slot moves from node to node, key by key, every call ends with an answer or with
// the certainty that nothing was recorded, and what was admitted is recorded once.
func TestWindowsWhoseSlotMoves(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	b := open(t, "redis+cluster://"+strings.Join(s.Addrs, ",")+"?timeout=10s")
	const most = 4_000_000_000
	request := func(k int) limit.Request {
		req := one(t, "", most, 1, 24*time.Hour, limit.Refuse)
		req.Ops[0].Key = limit.Key{Group: []string{"moving", "stays"}[k%2], Limit: fmt.Sprint("w", k)}
		return req
	}
	var admitted [20]atomic.Int64
	var failed atomic.Int64
	var all sync.WaitGroup
	var ended atomic.Bool
	for i := range 4 {
		r := rand.New(rand.NewPCG(random.Seed(t), uint64(i)))
		all.Go(func() {
			for !ended.Load() {
				ks := []int{r.IntN(20), r.IntN(20), r.IntN(20)}
				for j, v := range take(t, b, request(ks[0]), request(ks[1]), request(ks[2])) {
					switch {
					case v.Err == nil && v.Admitted:
						admitted[ks[j]].Add(1)
					case v.Err == nil || !errors.Is(v.Err, backends.ErrNotApplied):
						t.Errorf("%+v", v)
					default:
						failed.Add(1)
					}
				}
			}
		})
	}
	for range 3 {
		time.Sleep(100 * time.Millisecond)
		moveSlot(t, s, "{moving}", slotOfTag("moving"))
	}
	before := b.counted.Load()
	time.Sleep(200 * time.Millisecond)
	if b.counted.Load() == before {
		t.Error("nothing is counted without the script any more")
	}
	ended.Store(true)
	all.Wait()
	for k := range admitted {
		req := request(k)
		req.Ops[0].Cost = 0
		v := take(t, b, req)[0]
		if got, want := most-v.Outcomes[0].Remaining, admitted[k].Load(); got != want || want == 0 {
			t.Errorf("key %d: %d units are recorded, %d were admitted", k, got, want)
		}
	}
	t.Logf("%d calls failed", failed.Load())
}

// TestWindowsOfAFrozenNode: what it has fails at once while it hangs, the rest of a slice is counted, and the node that
// takes its place is asked.
func TestWindowsOfAFrozenNode(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	u := "redis+cluster://" + strings.Join(s.Addrs, ",") + "?timeout=100ms"
	b, stubborn := open(t, u), open(t, u+"&node_failures=0")
	node := s.MasterFor(b.ownKey(limit.Key{Group: "0"}))
	here, elsewhere := groupsOf(s, b, node)
	each := []limit.Request{eachOf(t, 1<<30, here[0]), eachOf(t, 1<<30, elsewhere[0])}
	counts := func(b *Backend) bool {
		before := b.calls.Load()
		v := take(t, b, each...)
		return v[0].Err == nil && v[1].Err == nil && b.calls.Load() == before
	}
	untouched := eachOf(t, 1<<30, here[1])
	take(t, b, untouched)
	eventually(t, "both are counted", func() bool { return counts(b) && counts(stubborn) })
	node.Pause()
	take(t, stubborn, each...)
	v := take(t, b, each...)
	if !errors.Is(v[0].Err, backends.ErrUnavailable) || errors.Is(v[0].Err, backends.ErrNotApplied) || v[1].Err != nil {
		t.Errorf("frozen: %v, elsewhere: %v", v[0].Err, v[1].Err)
	}
	eventually(t, "the node's circuit breaker is open", func() bool {
		return errors.Is(take(t, b, each[0])[0].Err, backends.ErrNotApplied)
	})
	if v := take(t, b, untouched)[0]; !errors.Is(v.Err, backends.ErrNotApplied) {
		t.Errorf("while the circuit breaker is open: %+v", v)
	}
	s.WaitNewMaster(b.ownKey(limit.Key{Group: "0"}), node)
	tries := 0
	eventually(t, "the new master counts", func() bool { tries++; return counts(b) && counts(stubborn) })
	if tries > 200 {
		t.Errorf("the new master counts after %d tries", tries)
	}
	node.Resume()
}

// TestCountingOnAClusterDecidesAsTheScript: with layout=envoy each counter has a slot of its own.
func TestCountingOnAClusterDecidesAsTheScript(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	url := "redis+cluster://" + strings.Join(s.Addrs, ",") + "?timeout=10s&layout=envoy&expiration_jitter=0"
	counting := openCounting(t, url+"&cache_key_prefix=c:&prefix=own-c:")
	script := open(t, url+"&cache_key_prefix=s:&prefix=own-s:")
	script.counts = nil
	at := thisHour()
	for _, want := range []bool{true, false} { // the script shows who has the slot; the driver's own pipeline is not used
		before := counting.calls.Load()
		takeOps(t, counting, at, hit(t, "d_a_", 9, 1))
		if n := counting.calls.Load() - before; n > 0 != want {
			t.Errorf("%d calls of the script, want some: %v", n, want)
		}
	}
	m, client := &sliceMaker{Rand: random.Rand(t, 19), t: t}, s.Client()
	for round := range random.Times(400, 20000) {
		m.round, m.mixed = round/25, round%3 == 0 // keys are young, and both live alike
		reqs := m.slice(at)[:1]                   // of several, the script decides first what is in one slot
		got, want := take(t, counting, reqs...), take(t, script, reqs...)
		waitRefunds(t, counting)
		waitRefunds(t, script)
		for i := range reqs {
			if !sameVerdict(&got[i], &want[i]) {
				t.Fatalf("round %d, %+v:\ncounting: %+v\nscript:   %+v", round, reqs[i], got[i], want[i])
			}
		}
		sameKeys(t, client, counting, script, reqs)
	}
	if n := counting.counted.Load(); n < 100 {
		t.Errorf("only %d slices were counted without the script", n)
	}
	for _, n := range s.Nodes[:3] {
		wantLives(t, n.Client())
	}
}
