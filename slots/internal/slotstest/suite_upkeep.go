package slotstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// upkeepChecks each have a database of their own.
func upkeepChecks() []check {
	return []check{
		{"Configs", checkConfigs}, {"Admins", checkAdmins}, {"Since", checkSince}, {"Windows", checkWindows},
		{"Lead", checkLead}, {"Purge", checkPurge}, {"Drift", checkDrift}, {"Migrate", checkMigrate},
	}
}

// inNoScope has configs count in windows that nobody uses.
func inNoScope(slots.Config) slots.Series { return slots.Series{Scope: "nowhere", SizeMs: 1000} }

// byName has configs count in the scope of their names.
func byName(c slots.Config) slots.Series { return slots.SeriesOf(c, false) }

func checkConfigs(t *testing.T, f *fixture) {
	ctx := limited(t)
	if _, err := f.store.ActiveConfig(ctx, "none"); !errors.Is(err, slots.ErrConfigNotFound) {
		t.Errorf("a config that is not there: %v", err)
	}
	g0, err := f.store.Generation(ctx)
	must(t, err, "generation")
	options := []slots.Options{{}, {Scope: "s", Stratified: true}, {Scope: "ü '"}}
	var last slots.Config
	for i, o := range options {
		c := slots.Config{ID: f.id(), Name: "n", Max: 9_999_999_999 - int64(i), SizeMs: []int64{100, 7500, 86_400_000}[i],
			Options: o, Active: true}
		put, err := f.store.PutConfig(ctx, c, inNoScope)
		must(t, err, "put")
		got, err := f.store.ActiveConfig(ctx, "n")
		must(t, err, "active config")
		if got != put || got.ID != c.ID || got.Max != c.Max || got.SizeMs != c.SizeMs || got.Options != o || !got.Active ||
			got.SinceUs < last.SinceUs {
			t.Errorf("put %+v, which gave %+v; got %+v", c, put, got)
		}
		if age := time.Since(time.UnixMicro(got.SinceUs)); age < -time.Hour || age > time.Hour {
			t.Errorf("in force since %v ago", age)
		}
		g, err := f.store.Generation(ctx)
		if err != nil || g <= g0 {
			t.Errorf("generation %d after %d, %v", g, g0, err)
		}
		g0, last = g, got
	}
	if g, err := f.store.Flush(ctx); err != nil || g <= g0 {
		t.Errorf("flush: generation %d after %d, %v", g, g0, err)
	}
	for _, name := range []string{"b", "a", "N"} {
		_, err := f.store.PutConfig(ctx, slots.Config{ID: f.id(), Name: name, Max: 1, SizeMs: 4000, Active: true}, inNoScope)
		must(t, err, "put")
	}
	list, err := f.store.ActiveConfigs(ctx, 3)
	must(t, err, "configs")
	all, err := f.store.ActiveConfigs(ctx, 100)
	must(t, err, "configs")
	if len(list) != 3 || len(all) != 4 {
		t.Errorf("%d of 4 configs, and %d of at most 3", len(all), len(list))
	}
}

// checkAdmins: those who change a config at the same time succeed one after
// another.
func checkAdmins(t *testing.T, f *fixture) {
	ctx := limited(t)
	stores := []slots.Store{f.store, f.db.Open(t)}
	g0, err := f.store.Generation(ctx)
	must(t, err, "generation")
	together(8, func(i int) {
		for n := range 6 {
			c := slots.Config{ID: fmt.Sprintf("id-%d-%d", i, n), Name: fmt.Sprint("n", n%2), Max: 1, SizeMs: 4000, Active: true}
			err := persistently(ctx, func() error {
				_, err := stores[i%2].PutConfig(ctx, c, inNoScope)
				return err
			})
			if err != nil {
				t.Errorf("put: %v", err)
			}
		}
	})
	all, err := f.store.ActiveConfigs(ctx, 100)
	must(t, err, "configs")
	if len(all) != 2 {
		t.Errorf("%d configs are active, of two names", len(all))
	}
	if g, err := f.store.Generation(ctx); err != nil || g < g0+48 {
		t.Errorf("generation %d after %d and 48 changes, %v", g, g0, err)
	}
}

// checkSince: pages have every slot once, also of those that come meanwhile, if
// one reads on from a little back (as its documentation says).
func checkSince(t *testing.T, f *fixture) {
	ctx, s := limited(t), f.series(4000)
	const writers, each = 6, 40
	provision(t, f.store, s, 0, writers, nil)
	var writing sync.WaitGroup
	writing.Go(func() {
		together(writers, func(i int) {
			for n := range each {
				f.put(t, f.slot(s, int64(i)*4000, f.event(100*i+n)))
			}
		})
	})
	seen := map[string]int{}
	read := func(after slots.Position) slots.Position {
		last := after
		for {
			page, err := f.store.SlotsSince(ctx, last, 7)
			must(t, err, "since")
			if !slices.IsSortedFunc(page, func(a, b slots.Slot) int { return comparePositions(positionOf(a), positionOf(b)) }) {
				t.Errorf("a page is not in order: %+v", page)
			}
			for _, slot := range page {
				if comparePositions(positionOf(slot), last) <= 0 {
					t.Errorf("slot %+v is not after %+v", positionOf(slot), last)
				}
				seen[slot.EventID]++
				last = positionOf(slot)
			}
			if len(page) < 7 {
				return last
			}
		}
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		case <-time.After(10 * time.Millisecond):
			clear(seen)
			read(slots.Position{})
			for event, n := range seen {
				if n != 1 {
					t.Errorf("event %q was listed %d times", event, n)
				}
			}
		}
	}
	clear(seen)
	end := read(slots.Position{})
	if len(seen) != writers*each {
		t.Errorf("%d of %d slots were listed", len(seen), writers*each)
	}
	if page, err := f.store.SlotsSince(ctx, end, 10); len(page) > 0 || err != nil {
		t.Errorf("after the last: %+v, %v", page, err)
	}
}

func checkWindows(t *testing.T, f *fixture) {
	ctx, s := limited(t), f.series(4000)
	provision(t, f.store, s, -8000, 6, nil)
	f.put(t, f.slot(s, 4000, f.event(1)))
	list, err := f.store.Windows(ctx, s, -4000, 8000, 10)
	if want := []slots.Window{{StartMs: -4000}, {StartMs: 0}, {StartMs: 4000, Count: 1}}; err != nil ||
		!slices.Equal(list, want) {
		t.Errorf("windows %+v, %v; want %+v", list, err, want)
	}
	if list, err = f.store.Windows(ctx, s, -8000, 8000, 2); err != nil || len(list) != 2 || list[0].StartMs != -8000 {
		t.Errorf("at most two windows: %+v, %v", list, err)
	}
	if list, err = f.store.Windows(ctx, f.series(5000), -8000, 8000, 2); err != nil || len(list) != 0 {
		t.Errorf("windows of another size: %+v, %v", list, err)
	}
}

func checkLead(t *testing.T, f *fixture) {
	ctx := limited(t)
	stores := []slots.Store{f.store, f.db.Open(t)}
	lead := func(holder string, ttl time.Duration) bool {
		ok, err := f.store.Lead(ctx, "other", holder, ttl)
		must(t, err, "lead")
		return ok
	}
	var mu sync.Mutex
	leaders := 0
	together(12, func(i int) {
		var ok bool
		err := persistently(ctx, func() (err error) {
			ok, err = stores[i%2].Lead(ctx, "w", fmt.Sprint(i), time.Hour)
			return err
		})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Errorf("lead: %v", err)
		}
		if ok {
			leaders++
		}
	})
	if leaders != 1 {
		t.Errorf("%d lead", leaders)
	}
	if !lead("a", time.Hour) || lead("b", time.Hour) || !lead("a", 20*time.Millisecond) {
		t.Error("leading other work, and renewing it, went wrong")
	}
	for deadline := time.Now().Add(30 * time.Second); !lead("b", time.Hour); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody took over from a leader that is gone")
		}
	}
	if lead("a", time.Hour) {
		t.Error("the old leader leads, too")
	}
}

// checkPurge: a purge removes windows and slots before an instant, so many at a time.
func checkPurge(t *testing.T, f *fixture) {
	ctx, s, d := limited(t), f.series(4000), slots.Series{Scope: f.prefix, SizeMs: 86_400_000}
	provision(t, f.store, s, 0, 10, &slots.Frontier{ChunkMs: 0, EndMs: 40_000})
	provision(t, f.store, d, 0, 1, nil)
	provision(t, f.store, s, 40_000, 10, &slots.Frontier{ChunkMs: 40_000, EndMs: 80_000})
	f.put(t, f.slot(s, 0, f.event(1)), f.slot(s, 0, f.event(2)))
	f.put(t, f.slot(s, 44_000, f.event(3)))
	var total int64
	for n := int64(-1); n != 0; total += n {
		var err error
		n, err = f.store.PurgeWindows(ctx, 47_999, time.Now().Add(time.Hour).UnixMicro(), 3)
		must(t, err, "purge windows")
		if n > 6 {
			t.Fatalf("%d rows were dropped, of at most 3 in each table", n)
		}
	}
	if total < 12 || total > 13 { // eleven windows, their frontier, and perhaps that of windows in part
		t.Errorf("%d rows were dropped", total)
	}
	f.wantCount(t, s, 36_000, -1)
	f.wantCount(t, s, 40_000, -1)
	f.wantCount(t, s, 44_000, 1)
	f.wantCount(t, d, 0, 0)
	if _, ok, err := f.store.Frontier(ctx, s, 0); ok || err != nil {
		t.Errorf("the frontier of what was dropped is there: %v", err)
	}
	f.purgedAgain(t, s)
	if n, err := f.store.PurgeSlots(ctx, time.Now().Add(-24*time.Hour).UnixMicro(), 10); n != 0 || err != nil {
		t.Errorf("%d slots of today were dropped, %v", n, err)
	}
	for _, want := range []int64{2, 2, 2, 0} {
		n, err := f.store.PurgeSlots(ctx, time.Now().Add(24*time.Hour).UnixMicro(), 2)
		if err != nil || n != want {
			t.Errorf("%d slots were dropped, want %d; %v", n, want, err)
		}
	}
	if found, err := f.store.Find(ctx, []string{f.event(1), f.event(2), f.event(3)}); len(found) > 0 || err != nil {
		t.Errorf("%d slots are there, %v", len(found), err)
	}
}

// purgedAgain: windows that were dropped count their slots when they are made
// again, and events find the earliest window with room there, too.
func (f *fixture) purgedAgain(t *testing.T, s slots.Series) {
	e := slots.TxEngine(f.store)
	found, err := e.Assign(limited(t), f.search(s, 0, 2, f.event(4)))
	if err != nil || found.Answers[0].Slot.WindowMs != 4000 {
		t.Errorf("window 0 has two slots of two: %+v, %v", found, err)
	}
	found, err = e.Assign(limited(t), f.search(s, 0, 3, f.event(6)))
	if err != nil || found.Answers[0].Slot.WindowMs != 0 {
		t.Errorf("window 0 has two slots of three: %+v, %v", found, err)
	}
	f.wantCount(t, s, 0, 3)
	// The first of its later windows is 40,000, whose chunk has lost windows.
	q := f.search(s, 36_000_000, 2, f.event(5))
	q.Asks[0].FirstMax = 0
	if found, err = e.Assign(limited(t), q); err != nil || found.Answers[0].Slot.WindowMs != 40_000 {
		t.Errorf("the window 40000 was dropped, its chunk's frontier may not hide that: %+v, %v", found, err)
	}
}

// bump puts an event into a window.
func (f *fixture) bump(t *testing.T, s slots.Series, at int64) {
	e := f.slot(s, at, f.id())
	f.put(t, e)
}

// checkDrift: a repair finds counters that are wrong. They go wrong here because slots are dropped.
func checkDrift(t *testing.T, f *fixture) {
	ctx, s, other := limited(t), f.series(4000), f.series(7000)
	for i, size := range []int64{4000, 7000} {
		c := slots.Config{ID: f.id(), Name: fmt.Sprint(f.prefix, i), Max: 3, SizeMs: size,
			Options: slots.Options{Scope: f.prefix}, Active: true}
		_, err := f.store.PutConfig(ctx, c, inNoScope)
		must(t, err, "put")
	}
	provision(t, f.store, s, 0, 20, nil)
	provision(t, f.store, other, 0, 10, nil)
	for i := range int64(6) {
		f.bump(t, s, i*4000)
	}
	f.bump(t, other, 63_000)
	f.wantForgotten(t, "slots are purged", func() {
		_, err := f.store.PurgeSlots(ctx, time.Now().Add(24*time.Hour).UnixMicro(), 100)
		must(t, err, "purge slots")
	})
	f.bump(t, s, 0)
	const asFound, repaired = false, true
	page := func(repair bool, from, to int64, limit int) (all []slots.Drift) {
		var after *slots.WindowKey
		for range 100 {
			drifts, next, err := f.store.Drift(ctx, from, to, after, limit, repair)
			must(t, err, "drift")
			all = append(all, drifts...)
			if next == nil {
				return all
			}
			after = next
		}
		t.Fatal("there is no end of windows")
		return nil
	}
	// Window 0 counts 2 and has 1; its slot lies in window 0 of 7 s, too, which counts 0.
	if all := page(asFound, 0, 100_000, 3); len(all) != 8 || all[0].Count != 2 || all[0].Slots != 1 || all[0].Repaired {
		t.Errorf("drifts: %+v", all)
	}
	if all := page(asFound, 4000, 12_000, 100); len(all) != 2 {
		t.Errorf("drifts between 4 s and 12 s: %+v", all)
	}
	f.wantForgotten(t, "windows are repaired", func() {
		if all := page(repaired, 0, 100_000, 3); len(all) != 8 ||
			slices.ContainsFunc(all, func(d slots.Drift) bool { return !d.Repaired }) {
			t.Errorf("repaired: %+v", all)
		}
	})
	if all := page(asFound, 0, 100_000, 3); len(all) != 0 {
		t.Errorf("after the repair: %+v", all)
	}
	f.wantCount(t, s, 0, 1)
	f.wantCount(t, s, 4000, 0)
	f.wantCount(t, other, 0, 1)
	f.driftBusy(t, s)
}

// wantForgotten: what makes counters shrink adds to the generation, so that nobody notes
// windows as full that were full before.
func (f *fixture) wantForgotten(t *testing.T, what string, shrink func()) {
	t.Helper()
	before, err := f.store.Generation(limited(t))
	must(t, err, "generation")
	shrink()
	after, err := f.store.Generation(limited(t))
	must(t, err, "generation")
	if after == before {
		t.Errorf("%s: the generation is %d as before", what, after)
	}
}

// driftBusy: repairing beside claims loses none of them.
func (f *fixture) driftBusy(t *testing.T, s slots.Series) {
	whole := limited(t)
	ctx, cancel := context.WithCancel(whole)
	var repairing sync.WaitGroup
	repairing.Go(func() {
		for ctx.Err() == nil {
			err := persistently(whole, func() error {
				_, _, err := f.store.Drift(whole, 0, 100_000, nil, 100, true)
				return err
			})
			if err != nil {
				t.Errorf("drift: %v", err)
				return
			}
		}
	})
	together(4, func(i int) {
		for n := range 15 {
			q := f.search(s, 0, 3, fmt.Sprintf("%s-busy-%d-%d", f.prefix, i, n))
			if _, err := assign(limited(t), slots.TxEngine(f.store), q); err != nil {
				t.Errorf("assign: %v", err)
			}
		}
	})
	cancel()
	repairing.Wait()
	f.audit(t, s, 3)
}

func checkMigrate(t *testing.T, f *fixture) {
	ctx := limited(t)
	stores := []slots.Store{f.store, f.db.Open(t), f.db.Open(t)}
	together(6, func(i int) {
		if _, err := stores[i%3].Migrate(ctx); err != nil {
			t.Errorf("migrate: %v", err)
		}
	})
	must(t, f.store.Ping(ctx), "ping")
	// Connections may be made ahead of need; nobody keeps one.
	for deadline := time.Now().Add(30 * time.Second); f.store.Pool().InUse != 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("connections are in use though nobody does anything: %+v", f.store.Pool())
		}
	}
}
