package slotstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/seed"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// engineChecks are about an engine on a store.
func engineChecks() []check {
	return []check{
		{"Scripts", checkScripts}, {"ScriptsBefore1970", checkScriptsBefore1970}, {"Crowd", checkCrowd},
		{"Budget", checkBudgets}, {"Exhaustion", checkExhaustion}, {"HeldWindow", checkHeldWindow}, {"HeldWindowWait", checkHeldWait},
		{"FullWindowNotHeld", checkFullNotHeld},
		{"NoLockWhileProvisioning", checkNoLock}, {"NeighboursShareAFrontier", checkNeighbours},
		{"LostCommits", checkLostCommits}, {"RowGone", checkRowGone},
	}
}

// checkScripts: one caller alone gets exactly what the naive rule gives, from
// every engine: so all engines give the same.
func checkScripts(t *testing.T, f *fixture) { f.scripts(t, day, 5) }

func checkScriptsBefore1970(t *testing.T, f *fixture) {
	f.scripts(t, time.Date(1969, 12, 31, 23, 59, 50, 0, time.UTC), 2)
	f.scripts(t, time.Date(1925, 6, 7, 8, 9, 10, 0, time.UTC), 1)
}

func (f *fixture) scripts(t *testing.T, at time.Time, n int) {
	for seed := range seed.Many(t, uint64(n)) {
		f.script(t, at, seed)
		if t.Failed() {
			return
		}
	}
}

func (f *fixture) script(t *testing.T, at time.Time, seed uint64) {
	ctx, rng, engine, n := limited(t), rand.New(rand.NewPCG(seed, 77)), f.on(f.store), newNaive()
	size := []int64{4000, 7000, 100, 1500, 86_400_000}[seed%5]
	series := slots.Series{Scope: fmt.Sprintf("%s-%d-%d", f.prefix, at.Year(), seed), SizeMs: size}
	for i := range 30 {
		first := plan.WindowStart(at.UnixMicro(), size) + rng.Int64N(8)*size
		us := first*1000 + rng.Int64N(2)*rng.Int64N(size*1000)
		q := f.search(series, us, 1+rng.Int64N(4), fmt.Sprintf("%s-%d-%d-%d", f.prefix, at.Year(), seed, rng.IntN(40)))
		q.Chunk, q.Chunks = 1+rng.IntN(4), rng.IntN(3)
		q.Stratified, q.Wait = rng.IntN(2) == 0, rng.IntN(2) == 0
		if rng.IntN(6) == 0 {
			q.EndMs = q.BaseMs + rng.Int64N(4)*size
		}
		q.Direct = rng.IntN(3) == 0
		frontier, ok, err := f.store.Frontier(ctx, series, q.GridMs())
		must(t, err, "frontier")
		if !ok {
			frontier = q.GridMs()
		} else if rng.IntN(2) == 0 {
			q.FrontierMs = frontier
		}
		want := n.assign(q, q.LimitMs(frontier))
		found, err := engine.Assign(ctx, q)
		must(t, err, "assign")
		f.compare(t, fmt.Sprintf("seed %d, search %d (%+v)", seed, i, *q), want, found, q, n)
	}
	for at, want := range n.counts {
		f.wantCount(t, series, at, want)
	}
}

func (f *fixture) compare(t *testing.T, what string, want []slots.Answer, found slots.Found, q *slots.Search, n *naive) {
	t.Helper()
	for _, wrong := range compareAnswers(want, found) {
		t.Errorf("%s: %s", what, wrong)
	}
	for at := q.FromMs; at < found.LowMs; at += q.SizeMs {
		if n.counts[at] < q.Max {
			t.Fatalf("%s: said to be full before %d, but window %d counts %d", what, found.LowMs, at, n.counts[at])
		}
	}
	if found.FirstCount > n.counts[q.FirstMs] || found.Held {
		t.Errorf("%s: the first window counts %d; found %+v", what, n.counts[q.FirstMs], found)
	}
}

// crowd has callers search at the same time and checks what they were given.
type crowd struct {
	f      *fixture
	series slots.Series
	max    int64
	events int
	wait   bool

	mu     sync.Mutex
	grants map[string]slots.Slot
	news   map[string]int
	failed bool // one failure is enough to see
}

func (f *fixture) newCrowd(sizeMs, max int64, events int) *crowd {
	return &crowd{f: f, series: f.series(sizeMs), max: max, events: events, grants: map[string]slots.Slot{}, news: map[string]int{}}
}

func (c *crowd) run(t *testing.T, callers, each int, engines []slots.Engine) {
	ctx := limited(t)
	base := plan.WindowStart(day.UnixMicro(), c.series.SizeMs)
	together(callers, func(i int) {
		rng := rand.New(rand.NewPCG(uint64(i), 5))
		for range each {
			us := (base+rng.Int64N(3)*c.series.SizeMs)*1000 + rng.Int64N(2)*rng.Int64N(c.series.SizeMs*1000)
			q := c.f.search(c.series, us, c.max, c.f.event(rng.IntN(c.events)))
			q.Chunks, q.Wait, q.Stratified = 100, c.wait, i%2 == 0
			found, err := assign(ctx, engines[i%len(engines)], q)
			if err != nil || found.Answers[0].Status == slots.Unplaced {
				c.fail(t, "assign: %+v, %v", found, err)
				return
			}
			c.grant(t, q, found.Answers[0])
		}
	})
	c.f.audit(t, c.series, c.max)
	c.check(t)
}

func (c *crowd) fail(t *testing.T, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.failed {
		t.Errorf(format, args...)
	}
	c.failed = true
}

func (c *crowd) grant(t *testing.T, q *slots.Search, a slots.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	event := q.Asks[0].EventID
	before, ok := c.grants[event]
	if ok && !same(before, a.Slot) {
		t.Errorf("event %q was given %+v, then %+v", event, before, a.Slot)
	}
	c.grants[event] = a.Slot
	if a.Status == slots.New {
		c.news[event]++
	}
}

func (c *crowd) check(t *testing.T) {
	stored := map[string]slots.Slot{}
	for _, list := range c.f.slotsOf(t, c.series) {
		for _, s := range list {
			stored[s.EventID] = s
		}
	}
	if len(stored) != len(c.grants) {
		t.Errorf("%d slots are stored, %d were given", len(stored), len(c.grants))
	}
	for event, s := range c.grants {
		if !same(stored[event], s) {
			t.Errorf("event %q was given %+v, stored is %+v", event, s, stored[event])
		}
		if c.news[event] != 1 {
			t.Errorf("event %q was new %d times", event, c.news[event])
		}
	}
}

func checkCrowd(t *testing.T, f *fixture) {
	for i, wait := range []bool{false, true} {
		g := f.named()
		c := g.newCrowd([]int64{4000, 7000}[i], []int64{7, 3}[i], 120)
		c.wait = wait
		c.run(t, 64, 4, []slots.Engine{g.on(g.store), g.on(g.db.Open(t))})
	}
}

// checkBudgets: S0-04, S0-105 to S0-107.
func checkBudgets(t *testing.T, f *fixture) {
	ctx, s := limited(t), f.series(4000)
	store, counter := Count(f.store)
	e := f.on(store)
	us := day.UnixMicro()
	budget := func(what string, q *slots.Search, want map[string]int) {
		t.Helper()
		if f.engine == EngineProcedure {
			want = map[string]int{"call": 1}
		}
		counter.Take()
		_, err := e.Assign(ctx, q)
		must(t, err, what)
		checkBudget(t, what, counter.Take(), want)
	}
	budget("first window", f.search(s, us, 1, f.event(1)), map[string]int{"find": 1, "provision": 1, "begin": 1, "lock": 1, "claim": 1, "commit": 1})
	budget("idempotent hit", f.search(s, us, 1, f.event(1)), map[string]int{"find": 1})
	q := f.search(s, us, 1, f.event(2))
	q.FirstKnown = true
	budget("first to provision", q, map[string]int{"find": 1, "peek": 1, "frontier": 1, "provision": 2, "scout": 2, "begin": 2, "lock": 2, "claim": 1, "commit": 1})
	q = f.search(s, us, 1, f.event(3))
	q.FirstKnown = true
	budget("provisioned", q, map[string]int{"find": 1, "peek": 1, "frontier": 1, "scout": 1, "begin": 2, "lock": 2, "claim": 1, "commit": 1})
}

// checkBudget fails the test for statements that were sent too often.
func checkBudget(t testing.TB, what string, got, most map[string]int) {
	t.Helper()
	for op, n := range got {
		if n > most[op] && op != "rollback" {
			t.Errorf("%s: %d × %s, at most %d; all: %v", what, n, op, most[op], got)
		}
	}
}

// checkExhaustion: S0-75, A0-14 with chunks of ten: the first window and the next
// thirty are full and no frontier is there.
func checkExhaustion(t *testing.T, f *fixture) {
	ctx, s := limited(t), f.series(4000)
	first := plan.WindowStart(day.UnixMicro(), 4000)
	provision(t, f.store, s, first, 31, nil)
	for i := range int64(31) {
		f.put(t, f.slot(s, first+i*4000, f.event(int(i))))
	}
	e := f.on(f.store)
	q := f.search(s, first*1000, 1, f.event(100))
	found, err := e.Assign(ctx, q)
	if err != nil || !found.Exhausted || found.Answers[0].Status != slots.Unplaced {
		t.Fatalf("first try: %+v, %v; want it to be exhausted", found, err)
	}
	found, err = e.Assign(ctx, q)
	if err != nil || found.Answers[0].Status != slots.New || found.Answers[0].Slot.WindowMs != first+31*4000 {
		t.Fatalf("second try: %+v, %v; want window %d", found, err, first+31*4000)
	}
	f.audit(t, s, 1)
}

// hold locks a window of the series in another session.
func (f *fixture) hold(t *testing.T, s slots.Series, at int64) (release func()) {
	tx := began(t, f.db.Open(t))
	_, ok, err := tx.Lock(limited(t), s, at, 1<<30)
	must(t, err, "lock")
	if !ok {
		t.Fatalf("window %d cannot be locked", at)
	}
	return tx.Rollback
}

// checkHeldWindow: nobody waits for another while there is a free window (S0-79),
// and windows that are free are not stepped over.
func checkHeldWindow(t *testing.T, f *fixture) {
	if f.Serial {
		t.Skip("transactions wait for each other")
	}
	ctx, s, e := limited(t), f.series(4000), f.on(f.store)
	first := plan.WindowStart(day.UnixMicro(), 4000)
	provision(t, f.store, s, first, 1, nil)
	want := func(event int, window int64) {
		t.Helper()
		// It comes back while the window is held, or the context ends it.
		found, err := e.Assign(ctx, f.search(s, first*1000, 2, f.event(event)))
		if err != nil || found.Answers[0].Status != slots.New || found.Answers[0].Slot.WindowMs != window {
			t.Fatalf("%+v, %v; want window %d", found, err, window)
		}
	}
	release := f.hold(t, s, first)
	want(1, first+4000)
	second := f.hold(t, s, first+4000)
	want(2, first+8000)
	release()
	want(3, first)
	second()
	want(4, first)
	want(5, first+4000)
	f.audit(t, s, 2)
}

// A search that waits says so instead.
func checkHeldWait(t *testing.T, f *fixture) {
	if f.Serial {
		t.Skip("transactions wait for each other")
	}
	ctx, s, e := limited(t), f.series(4000), f.on(f.store)
	first := plan.WindowStart(day.UnixMicro(), 4000)
	provision(t, f.store, s, first, 1, nil)
	q := f.search(s, first*1000, 1, f.event(1))
	q.Wait = true
	release := f.hold(t, s, first)
	if found, err := e.Assign(ctx, q); err != nil || !found.Held || found.Exhausted || found.Answers[0].Status != slots.Unplaced {
		t.Fatalf("while the first window is held: %+v, %v", found, err)
	}
	release()
	if found, err := e.Assign(ctx, q); err != nil || found.Held || found.Answers[0].Slot.WindowMs != first {
		t.Fatalf("when it is not any more: %+v, %v", found, err)
	}
	provision(t, f.store, s, first+4000, 1, nil)
	q = f.search(s, first*1000, 1, f.event(2))
	q.Wait = true
	release = f.hold(t, s, first+4000)
	if found, err := e.Assign(ctx, q); err != nil || !found.Held || found.LowMs > first+4000 {
		t.Fatalf("while a later window is held: %+v, %v", found, err)
	}
	release()
	if found, err := e.Assign(ctx, q); err != nil || found.Answers[0].Slot.WindowMs != first+4000 {
		t.Fatalf("when it is not any more: %+v, %v", found, err)
	}
}

// checkFullNotHeld: a window that is full for an event, because it comes late in
// it, is not held while the event gets another one: it has room for others (F5).
// The event is kept waiting by a second transaction that is inserting it, too.
func checkFullNotHeld(t *testing.T, f *fixture) {
	if f.Serial {
		t.Skip("transactions wait for each other")
	}
	ctx, s, e := limited(t), f.series(4000), f.on(f.store)
	first, far := plan.WindowStart(day.UnixMicro(), 4000), plan.WindowStart(day.Add(24*time.Hour).UnixMicro(), 4000)
	provision(t, f.store, s, first, 1, nil)
	provision(t, f.store, s, far, 1, nil)
	f.put(t, f.slot(s, first, f.event(1)))
	other := began(t, f.db.Open(t))
	_, ok, err := other.Lock(ctx, s, far, 9)
	must(t, err, "lock")
	if !ok {
		t.Fatal("the window cannot be locked")
	}
	must(t, other.Claim(ctx, s, far, []slots.Slot{f.slot(s, far, f.event(2))}), "claim")

	done := make(chan error)
	go func() {
		q := f.search(s, (first+3000)*1000, 4, f.event(2)) // room for one, which is taken
		_, err := assign(ctx, e, q)
		done <- err
	}()
	// It has left the first window when it holds a later one: the second or, if
	// looking held that one just when the search came to it, one after it.
	allFree := func() bool {
		return f.free(t, s, first+4000) && f.free(t, s, first+8000) && f.free(t, s, first+12000)
	}
	for deadline := time.Now().Add(suiteLimit); allFree(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the search never came to a second window")
		}
	}
	if !f.free(t, s, first) {
		t.Error("the first window is held by somebody who has no use for it")
	}
	other.Rollback()
	must(t, <-done, "assign")
}

// free tells whether the window could be locked just now; one without a row is
// free, too.
func (f *fixture) free(t *testing.T, s slots.Series, at int64) bool {
	t.Helper()
	tx, err := f.store.Begin(limited(t))
	must(t, err, "begin")
	defer tx.Rollback()
	_, ok, err := tx.Lock(limited(t), s, at, 1<<30)
	must(t, err, "lock")
	if ok {
		return true
	}
	_, there, err := f.store.Peek(limited(t), s, at)
	must(t, err, "peek")
	return !there
}

// checkNoLock: no transaction is open while windows are provisioned (F5, F6).
func checkNoLock(t *testing.T, f *fixture) {
	if f.engine == EngineProcedure {
		t.Skip("its statements cannot be seen; ProvisionBesideLock and Crowd have to do")
	}
	var mu sync.Mutex
	open := 0
	count := func(op string) int {
		mu.Lock()
		defer mu.Unlock()
		switch op {
		case "begin":
			open++
		case "rollback", "commit":
			open = 0
		}
		return open
	}
	store := Watch(f.store, Watcher{Before: func(_ context.Context, op string) error {
		if n := count(op); n > 0 && op != "lock" && op != "claim" && op != "begin" {
			t.Errorf("%s while a transaction is open", op)
		}
		return nil
	}})
	e, s := f.on(store), f.series(4000)
	for i := range 8 {
		q := f.search(s, day.UnixMicro(), 1, f.event(i))
		q.Chunk = 2
		_, err := e.Assign(limited(t), q)
		must(t, err, "assign")
	}
}

// checkNeighbours: starts of one chunk share its rows and its frontier (F7).
func checkNeighbours(t *testing.T, f *fixture) {
	s, e := f.series(4000), f.on(f.store)
	chunk := plan.ChunkStart(plan.WindowStart(day.UnixMicro(), 4000), 4000, 10)
	for i := range int64(8) {
		q := f.search(s, (chunk+i*4000)*1000, 1, f.event(int(i)))
		q.Asks[0].FirstMax = 0
		found, err := e.Assign(limited(t), q)
		must(t, err, "assign")
		if want := []int64{10, 0}[min(i, 1)]; found.Provisioned != want || found.Answers[0].Slot.WindowMs != chunk+(i+1)*4000 {
			t.Errorf("start %d: %+v; want %d rows", i, found, want)
		}
	}
}

// checkLostCommits: an answer that got lost, before or after the commit took
// effect, is found by asking again.
func checkLostCommits(t *testing.T, f *fixture) {
	if f.engine == EngineProcedure {
		f.lostCalls(t)
		return
	}
	lossy := func(store slots.Store) slots.Store {
		lost := &slots.StoreError{Kind: slots.Passing, Op: "commit", Err: errLostCommit}
		return Watch(store, Watcher{
			Before: func(_ context.Context, op string) error {
				if op == "commit" && rand.IntN(5) == 0 {
					return lost
				}
				return nil
			},
			After: func(op string, err error) error {
				if op == "commit" && err == nil && rand.IntN(5) == 0 {
					return lost
				}
				return err
			},
		})
	}
	c := f.newCrowd(4000, 5, 100)
	c.run(t, 16, 10, []slots.Engine{f.on(lossy(f.store)), f.on(lossy(f.db.Open(t)))})
}

func (f *fixture) lostCalls(t *testing.T) {
	store := Watch(f.store, Watcher{After: func(op string, err error) error {
		if op == "call" && err == nil && rand.IntN(5) == 0 {
			return &slots.StoreError{Kind: slots.Passing, Op: "call", Err: errLostCommit}
		}
		return err
	}})
	f.newCrowd(4000, 5, 100).run(t, 16, 10, []slots.Engine{f.on(store)})
}

// checkRowGone: a first window that was known, and purged since, is made again.
func checkRowGone(t *testing.T, f *fixture) {
	s := f.series(4000)
	q := f.search(s, day.UnixMicro(), 3, f.event(1))
	q.FirstKnown = true
	found, err := f.on(f.store).Assign(limited(t), q)
	if err != nil || found.Answers[0].Slot.WindowMs != q.FirstMs {
		t.Fatalf("%+v, %v; want the first window", found, err)
	}
	f.audit(t, s, 3)
}
