package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// A client that thinks of ever new values pushes out neither who has used up the same limit nor what others
// count under another one. With a whole limit for each key he can.
func TestNewKeysPushOutTheLeastUsedOfTheLargestRule(t *testing.T) {
	flood := random.Times(5000, 20_000)
	named := func(name string, i int) limit.Key { return limit.Key{Group: fmt.Sprint(name, i), Limit: "l"} }
	for _, a := range limit.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			tk := taker{b: New(Config{MaxKeys: 1000})}
			flooded := limit.MustNew(limit.Spec{Algorithm: a, Max: 3, Window: time.Hour})
			other := limit.MustNew(limit.Spec{Algorithm: a, Max: 1000, Window: time.Minute})
			for i := range 20 {
				tk.take(start, named("done", i), flooded, 3)
				tk.take(start, named("half", i), flooded, 2)
				tk.take(start, named("other", i), other, 1)
			}
			for i := range flood {
				tk.take(start+limit.Instant(i), named("new", i), flooded, 1)
			}
			kept := func(name string, l *limit.Limit, most int64) (n int) {
				for i := range 20 {
					if tk.take(start+limit.Instant(flood), named(name, i), l, 0).Remaining <= most {
						n++
					}
				}
				return n
			}
			done, half, others := kept("done", flooded, 0), kept("half", flooded, 1), kept("other", other, 999)
			if done < 20 || half < 20 || others < 20 {
				t.Errorf("of 20 keys each: %d at their limit, %d half used, and %d under another limit are kept", done, half,
					others)
			}
			if n := tk.b.Stats().Keys; n > 1000 {
				t.Errorf("%d keys", n)
			}
			for i := range flood {
				tk.take(start+limit.Instant(flood)+limit.Instant(i), named("paid", i), flooded, 3)
			}
			if n := kept("done", flooded, 0); n > 2 {
				t.Errorf("%d of 20 keys are still kept after %d others at their limits", n, flood)
			}
		})
	}
}

// Budgets are as many as there are limits in use, and what they point to is theirs.
func TestBudgetsEnd(t *testing.T) {
	b := New(Config{MaxKeys: 100})
	tk := taker{b: b}
	for i := range 5000 {
		l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: int64(1 + i%700), Window: time.Second})
		tk.take(start+limit.Instant(i)*second/1000, numbered(i%300), l, 1)
		s := &b.shards[0]
		all := 0
		for figures, of := range s.budgets.of {
			all += len(of.entries)
			if len(of.entries) == 0 || of.figures != figures {
				t.Fatalf("after %d: an empty budget stays, or has another name", i)
			}
			for place, e := range of.entries {
				if e.budget != of || int(e.place) != place {
					t.Fatalf("after %d: a key is not where it says", i)
				}
			}
		}
		if all != len(s.queue) || all > 100 {
			t.Fatalf("after %d: %d keys in budgets, %d in all", i, all, len(s.queue))
		}
	}
	b.Sweep(start + 3600*second)
	if n := len(b.shards[0].budgets.of); n != 0 {
		t.Errorf("%d budgets stay", n)
	}
}
