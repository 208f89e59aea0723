package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// moverKeys is how many counters each of the groups has whose slot moves.
const moverKeys = 40

// resharding: while slots move from node to node, key by key, every call ends with an answer or with the
// certainty that nothing was recorded, and what was admitted is recorded once.
func resharding(t *testing.T, s *testenv.Cluster, u string) {
	b := open(t, u)
	slot := slotOfTag("moving")
	names := []string{"moving"}
	for i := 0; len(names) < 3; i++ {
		if g := fmt.Sprint("also", i); slotOfTag(g) == slot {
			names = append(names, g)
		}
	}
	at := limit.InstantOf(time.Now().Add(2 * time.Hour).Truncate(time.Hour)) // no window ends
	var units [3][moverKeys]atomic.Int64
	var decided, refused, failed atomic.Int64
	op := func(group, key int) limit.Op {
		a := limit.Algorithms()[key%len(limit.Algorithms())]
		return limit.Op{Cost: 1, Key: limit.Key{Group: names[group], Limit: fmt.Sprint(a, key)},
			Limit: limit.MustNew(limit.Spec{Algorithm: a, Max: 2000, Window: time.Hour})}
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for n := worker; ctx.Err() == nil && n < 5000; n++ { // below the limits
				var reqs []limit.Request
				var of [][][2]int
				for i := range 6 {
					g, k := (n+i)%3, (7*n+i)%moverKeys
					req, places := limit.Request{At: at, Ops: []limit.Op{op(g, k)}}, [][2]int{{g, k}}
					if i%2 == 1 {
						k = (k + 1) % moverKeys
						req.Ops, places = append(req.Ops, op(g, k)), append(places, [2]int{g, k})
					}
					if i == 5 { // elsewhere, too
						req.Ops = append(req.Ops, limit.Op{Key: limit.Key{Group: "stays", Limit: "f"}, Limit: elsewhere, Cost: 1})
					}
					reqs, of = append(reqs, req), append(of, places)
				}
				out := make([]limit.Verdict, len(reqs))
				within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				b.Take(within, reqs, out)
				cancel()
				for i := range out {
					switch err := out[i].Err; {
					case err == nil && out[i].Admitted:
						decided.Add(1)
						for _, p := range of[i] {
							units[p[0]][p[1]].Add(1)
						}
					case err == nil:
						refused.Add(1)
					case i == 5 && errors.Is(err, backends.ErrUnavailable): // the other slot's part is given back
						failed.Add(1)
					case !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, backends.ErrNotApplied):
						t.Errorf("request %d: %v", i, err)
					default:
						failed.Add(1)
					}
				}
			}
		})
	}
	for range 3 {
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		keys := moveSlot(t, s, "{moving}", slot)
		t.Logf("%d keys moved in %v: %d decided, %d failed so far, %d retries", keys,
			time.Since(began).Round(time.Millisecond), decided.Load(), failed.Load(), b.Stats().Retries)
	}
	time.Sleep(100 * time.Millisecond)
	stop()
	all.Wait()
	waitRefunds(t, b)
	if decided.Load() == 0 || refused.Load() > 0 {
		t.Errorf("%d decided, %d refused", decided.Load(), refused.Load())
	}
	for g := range units {
		for k := range units[g] {
			o := op(g, k)
			o.Cost = 0
			out := make([]limit.Verdict, 1)
			b.Take(t.Context(), []limit.Request{{At: at, Ops: []limit.Op{o}}}, out)
			if out[0].Err != nil {
				t.Fatal(out[0].Err)
			}
			if got, want := o.Limit.Max()-out[0].Outcomes[0].Remaining, units[g][k].Load(); got != want {
				t.Errorf("group %d, %s: %d units are recorded, want %d", g, o.Key.Limit, got, want)
			}
		}
	}
}

var elsewhere = limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1 << 40, Window: time.Hour})

// moveSlot moves a slot to another master, a few keys at a time, as redis-cli does.
func moveSlot(t *testing.T, s *testenv.Cluster, key string, slot int) (moved int) {
	t.Helper()
	ctx := t.Context()
	from := s.MasterFor(key)
	to := s.Nodes[(slices.Index(s.Nodes[:3], from)+1)%3]
	src, dst := from.Client(), to.Client()
	do := func(c *redis.Client, args ...any) any {
		v, err := c.Do(ctx, args...).Result()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return v
	}
	srcID, dstID := do(src, "cluster", "myid"), do(dst, "cluster", "myid")
	do(dst, "cluster", "setslot", slot, "importing", srcID)
	do(src, "cluster", "setslot", slot, "migrating", dstID)
	host, port, _ := strings.Cut(to.Addr, ":")
	for {
		keys, err := src.ClusterGetKeysInSlot(ctx, slot, 5).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		do(src, args...)
		moved += len(keys)
		time.Sleep(20 * time.Millisecond)
	}
	do(dst, "cluster", "setslot", slot, "node", dstID)
	do(src, "cluster", "setslot", slot, "node", dstID)
	for _, n := range s.Nodes[:3] {
		do(n.Client(), "cluster", "setslot", slot, "node", dstID)
	}
	return moved
}
