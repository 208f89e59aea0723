package slotstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
	"github.com/headgate-rls/headgate/test/random"
)

// engineChecks are about an engine on a store.
func engineChecks() []check {
	return []check{
		{"Scripts", checkScripts}, {"ScriptsBefore1970", checkScriptsBefore1970}, {"Crowd", checkCrowd},
		{"Budget", checkBudgets}, {"Exhaustion", checkExhaustion}, {"HeldWindow", checkHeldWindow},
		{"NewWindowHeld", checkNewHeld},
		{"FullWindowNotHeld", checkFullNotHeld}, {"Superseded", checkSuperseded}, {"Uncounted", checkUncounted},
		{"Backlog", checkBacklog},
		{"LostCommits", checkLostCommits},
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
	for seed := range random.Seeds(t, uint64(n)) {
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
		q.Stratified = rng.IntN(2) == 0
		if rng.IntN(6) == 0 {
			q.EndMs = q.FromMs + rng.Int64N(4)*size
		}
		q.Direct = rng.IntN(3) == 0
		want := n.assign(q, q.EndMs)
		found, err := engine.Assign(ctx, q)
		must(t, err, "assign")
		f.compare(t, fmt.Sprintf("seed %d, search %d (%+v)", seed, i, *q), want, found, q, n)
	}
	for at, want := range n.counts {
		f.wantCount(t, series, at, want)
	}
}

func (f *fixture) compare(t *testing.T, what string, want []slots.Answer, found slots.Found,
	q *slots.Search, n *naive) {
	t.Helper()
	for _, wrong := range compareAnswers(want, found) {
		t.Errorf("%s: %s", what, wrong)
	}
	for _, full := range found.Full {
		for at := full.FromMs; at < full.ToMs; at += q.SizeMs {
			if n.counts[at] < q.Max {
				t.Fatalf("%s: said to be full: %+v, but window %d counts %d", what, full, at, n.counts[at])
			}
		}
	}
	if found.FirstCount > n.counts[q.FirstMs] {
		t.Errorf("%s: the first window counts %d; found %+v", what, n.counts[q.FirstMs], found)
	}
}

// crowd has callers search at the same time and checks what they were given.
type crowd struct {
	f      *fixture
	series slots.Series
	max    int64
	events int

	mu     sync.Mutex
	grants map[string]slots.Slot
	news   map[string]int
	failed bool // one failure is enough to see
}

func (f *fixture) newCrowd(sizeMs, max int64, events int) *crowd {
	return &crowd{f: f, series: f.series(sizeMs), max: max, events: events, grants: map[string]slots.Slot{},
		news: map[string]int{}}
}

func (c *crowd) run(t *testing.T, callers, each int, engines []slots.Engine) {
	ctx := limited(t)
	base := plan.WindowStart(day.UnixMicro(), c.series.SizeMs)
	together(callers, func(i int) {
		rng := rand.New(rand.NewPCG(uint64(i), 5))
		for range each {
			us := (base+rng.Int64N(3)*c.series.SizeMs)*1000 + rng.Int64N(2)*rng.Int64N(c.series.SizeMs*1000)
			q := c.f.search(c.series, us, c.max, c.f.event(rng.IntN(c.events)))
			q.Stratified = i%2 == 0
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
	for i := range 2 {
		g := f.named()
		c := g.newCrowd([]int64{4000, 7000}[i], []int64{7, 3}[i], 120)
		c.run(t, 64, 4, []slots.Engine{g.on(g.store), g.on(g.db.Open(t))})
	}
}

// checkBudgets: a search sends no more statements than it may.
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
	budget("first window", f.search(s, us, 1, f.event(1)), map[string]int{"find": 1, "place": 1, "begin": 1, "lock": 1,
		"claim": 1, "commit": 1})
	budget("idempotent hit", f.search(s, us, 1, f.event(1)), map[string]int{"find": 1})
	later := map[string]int{"find": 1, "peek": 1, "scout": 1, "place": 2, "begin": 2, "lock": 2, "claim": 1, "commit": 1}
	budget("later window", f.search(s, us, 1, f.event(2)), later)
	budget("after full ones", f.search(s, us, 1, f.event(3)), later)
	q := f.search(s, us, 1, f.event(4))
	q.FromMs, q.Direct, q.Asks[0].FirstMax = q.FromMs+2*4000, true, 0
	budget("where the hint says", q, map[string]int{"find": 1, "place": 1, "begin": 1, "lock": 1, "claim": 1, "commit": 1})
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

// checkExhaustion: a search ends where the open windows do.
func checkExhaustion(t *testing.T, f *fixture) {
	ctx, s := limited(t), f.series(4000)
	first := plan.WindowStart(day.UnixMicro(), 4000)
	provision(t, f.store, s, first, 31, nil)
	for i := range int64(31) {
		f.put(t, f.slot(s, first+i*4000, f.event(int(i))))
	}
	e := f.on(f.store)
	q := f.search(s, first*1000, 1, f.event(100))
	q.EndMs = first + 31*4000
	found, err := e.Assign(ctx, q)
	if err != nil || !found.Exhausted || found.Answers[0].Status != slots.Unplaced {
		t.Fatalf("31 full windows, and no more: %+v, %v; want it to be exhausted", found, err)
	}
	q.EndMs += 4000
	found, err = e.Assign(ctx, q)
	if err != nil || found.Answers[0].Status != slots.New || found.Answers[0].Slot.WindowMs != first+31*4000 {
		t.Fatalf("one window more: %+v, %v; want window %d", found, err, first+31*4000)
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

// checkHeldWindow: nobody waits for long for another while there is a free window,
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

// checkNewHeld: nor for a window that another has just made, and not committed.
func checkNewHeld(t *testing.T, f *fixture) {
	if f.Serial {
		t.Skip("transactions wait for each other")
	}
	ctx, s, e := limited(t), f.series(4000), f.on(f.store)
	first := plan.WindowStart(day.UnixMicro(), 4000)
	tx := began(t, f.db.Open(t))
	if _, ok, err := tx.Lock(ctx, s, first, 5); !ok || err != nil {
		t.Fatal(ok, err)
	}
	must(t, tx.Claim(ctx, s, first, []slots.Slot{f.slot(s, first, f.event(1))}), "claim")
	found, err := e.Assign(ctx, f.search(s, first*1000, 5, f.event(2)))
	if err != nil || found.Answers[0].Slot.WindowMs != first+4000 {
		t.Fatalf("%+v, %v; want the window after", found, err)
	}
	must(t, tx.Commit(ctx), "commit")
	if found, err = e.Assign(ctx, f.search(s, first*1000, 5, f.event(3))); err != nil ||
		found.Answers[0].Slot.WindowMs != first {
		t.Fatalf("%+v, %v; want the first window", found, err)
	}
	f.audit(t, s, 5)
}

// checkSuperseded: no slot is given by a version that is not the active one; a claim
// that is under way is waited for.
func checkSuperseded(t *testing.T, f *fixture) {
	ctx, s, e := limited(t), f.series(4000), f.on(f.store)
	put := func(max int64) slots.Config {
		c, err := f.store.PutConfig(ctx, slots.Config{ID: f.id(), Name: f.prefix, Max: max, SizeMs: 4000, Active: true},
			byName)
		must(t, err, "put")
		return c
	}
	old := put(5)
	first := plan.WindowStart(day.UnixMicro(), 4000)
	if !f.Serial {
		tx, err := f.db.Open(t).Begin(ctx, old.ID)
		must(t, err, "begin")
		_, _, err = tx.Lock(ctx, s, first, 5)
		must(t, err, "lock")
		done := make(chan error, 1)
		go func() {
			_, err := f.store.PutConfig(ctx, slots.Config{ID: f.id(), Name: f.prefix, Max: 4, SizeMs: 4000, Active: true},
				byName)
			for slots.KindOf(err) == slots.Held { // the database waits for so long only
				_, err = f.store.PutConfig(ctx, slots.Config{ID: f.id(), Name: f.prefix, Max: 4, SizeMs: 4000, Active: true},
					byName)
			}
			done <- err
		}()
		select {
		case err := <-done:
			t.Fatalf("a claim is under way, and a new version is in force: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		must(t, tx.Claim(ctx, s, first, []slots.Slot{f.slot(s, first, f.event(1))}), "claim")
		must(t, tx.Commit(ctx), "commit")
		must(t, <-done, "put")
	} else {
		put(4)
	}
	q := f.search(s, first*1000, 5, f.event(2))
	q.ConfigID = old.ID
	found, err := e.Assign(ctx, q)
	if slots.KindOf(err) != slots.Superseded || found.Answers[0].Status != slots.Unplaced {
		t.Errorf("by the old version: %+v, %v", found, err)
	}
	if have, err := f.store.Find(ctx, []string{f.event(2)}); len(have) > 0 || err != nil {
		t.Errorf("the event has a slot: %+v, %v", have, err)
	}
}

// checkUncounted: windows without rows that events are scheduled inside, of another
// size, count them when they are claimed, however many they are.
func checkUncounted(t *testing.T, f *fixture) {
	ctx, s, other, e := limited(t), f.series(4000), f.series(1000), f.on(f.store)
	first := plan.WindowStart(day.UnixMicro(), 4000)
	var list []slots.Slot
	for i := range int64(30) {
		slot := f.slot(other, first, f.event(int(i)))
		slot.ScheduledMs = first + i*4000 + 17
		list = append(list, slot)
	}
	f.put(t, list...)
	for i := range int64(2) {
		found, err := e.Assign(ctx, f.search(s, first*1000, 1, f.event(100+int(i))))
		if err != nil || found.Answers[0].Slot.WindowMs != first+(30+i)*4000 {
			t.Fatalf("30 windows are full: %+v, %v; want window %d", found, err, first+(30+i)*4000)
		}
	}
	for _, c := range []struct{ from, to, max, want int64 }{{15, 40, 1, 30}, {15, 20, 1, 20}, {15, 40, 2, 15},
		{30, 40, 1, 30}, {33, 40, 1, 33}} {
		end, err := f.store.Uncounted(ctx, f.series(4000), first+c.from*4000, first+c.to*4000, c.max)
		must(t, err, "uncounted")
		if got := (end - first) / 4000; got != c.want {
			t.Errorf("full windows without rows %+v: they end at %d", c, got)
		}
	}
}

// checkBacklog: what is noted of full windows leads to the same window as their rows,
// until it is not true any more.
func checkBacklog(t *testing.T, f *fixture) {
	ctx, s, e := limited(t), f.series(4000), f.on(f.store)
	c, err := f.store.PutConfig(ctx, slots.Config{ID: f.id(), Name: f.prefix, Max: 1, SizeMs: 4000, Active: true},
		byName)
	must(t, err, "put")
	first := plan.WindowStart(day.UnixMicro(), 4000)
	for i := range int64(12) {
		f.put(t, f.slot(s, first+i*4000, f.event(int(i))))
	}
	g, err := f.store.Generation(ctx)
	must(t, err, "generation")
	for _, span := range []slots.Span{{FromMs: 1, ToMs: 4}, {FromMs: 6, ToMs: 8}, {FromMs: 3, ToMs: 7},
		{FromMs: 2, ToMs: 5}} {
		must(t, f.store.NoteFull(ctx, s, 1, slots.Span{FromMs: first + span.FromMs*4000, ToMs: first + span.ToMs*4000}, g),
			"note")
	}
	must(t, f.store.NoteFull(ctx, s, 1, slots.Span{FromMs: first, ToMs: first + 400_000}, g-1),
		"note what was seen before the last change")
	for from := range int64(14) {
		at, ok, err := f.store.Scout(ctx, s, first+from*4000, first+40*4000, 1)
		if want := first + max(from, 12)*4000; at != want || !ok || err != nil {
			t.Errorf("from window %d: %d, %v, %v; want window 12", from, (at-first)/4000, ok, err)
		}
		if at, ok, err = f.store.Scout(ctx, s, first+from*4000, first+12*4000, 1); from < 12 && (ok || err != nil) {
			t.Errorf("from window %d: %d, %v, though all are full", from, (at-first)/4000, err)
		}
		if at, ok, err = f.store.Scout(ctx, s, first+from*4000, first+40*4000, 2); at != first+from*4000 ||
			!ok || err != nil {
			t.Errorf("from window %d for another maximum: %d, %v, %v", from, (at-first)/4000, ok, err)
		}
	}
	q := f.search(s, first*1000, 1, f.event(100))
	q.ConfigID = c.ID
	found, err := e.Assign(ctx, q)
	if err != nil || found.Answers[0].Slot.WindowMs != first+12*4000 {
		t.Errorf("%+v, %v; want window 12", found, err)
	}
}

// checkFullNotHeld: a window that is full for an event, because it comes late in
// it, is not held while the event gets another one: it has room for others.
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

	done := make(chan error, 1)
	go func() {
		q := f.search(s, (first+3000)*1000, 4, f.event(2)) // room for one, which is taken
		_, err := assign(ctx, e, q)
		done <- err
	}()
	// The search waits for the other transaction for a second at a time. If it held the first
	// window meanwhile, most of those who ask for that window would have to wait, too.
	const probes = 8
	slow := 0
	for range probes {
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if !f.free(t, s, first) || time.Since(began) > 300*time.Millisecond {
			slow++
		}
	}
	if slow > probes/2 {
		t.Errorf("the first window was held in %d of %d probes by somebody who has no use for it", slow, probes)
	}
	if len(done) > 0 {
		t.Error("the search ended though another transaction is inserting its event")
	}
	other.Rollback()
	must(t, <-done, "assign")
}

// free reports whether the window could be locked just now.
func (f *fixture) free(t *testing.T, s slots.Series, at int64) bool {
	t.Helper()
	tx, err := f.store.Begin(limited(t), "")
	must(t, err, "begin")
	defer tx.Rollback()
	_, ok, err := tx.Lock(limited(t), s, at, 1<<30)
	if slots.KindOf(err) == slots.Held {
		return false
	}
	must(t, err, "lock")
	return ok
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
				if (op == "commit" || op == "place") && rand.IntN(5) == 0 {
					return lost
				}
				return nil
			},
			After: func(op string, err error) error {
				if (op == "commit" || op == "place") && err == nil && rand.IntN(5) == 0 {
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
