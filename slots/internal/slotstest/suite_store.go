package slotstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// storeChecks hold the statements of a store to their documentation.
func storeChecks() []check {
	return []check{
		{"Provision", checkProvision}, {"ProvisionSeeds", checkSeeding}, {"Frontier", checkFrontier},
		{"Lock", checkLock}, {"LockHeld", checkLockHeld}, {"Claim", checkClaim}, {"Rollback", checkRollback},
		{"ClaimDuplicate", checkDuplicate}, {"ClaimDuplicatePending", checkPending},
		{"Find", checkFind}, {"FindApart", checkApart}, {"Scout", checkScout},
		{"Cancelled", checkCancelled}, {"ProvisionBesideLock", checkProvisionBesideLock},
		{"ProvisionTogether", checkProvisionTogether},
	}
}

// began starts a transaction that the test rolls back.
func began(t testing.TB, store slots.Tables) slots.Tx {
	t.Helper()
	tx, err := store.Begin(limited(t), "")
	must(t, err, "begin")
	t.Cleanup(tx.Rollback)
	return tx
}

func provision(t testing.TB, store slots.Tables, s slots.Series, fromMs int64, n int, f *slots.Frontier) int64 {
	t.Helper()
	rows, err := store.Provision(limited(t), s, fromMs, fromMs+int64(n)*s.SizeMs, f)
	must(t, err, "provision")
	return rows
}

// slot is a slot in the window, of a new id.
func (f *fixture) slot(s slots.Series, windowMs int64, event string) slots.Slot {
	return slots.Slot{ID: f.id(), EventID: event, Series: s, RequestedUs: windowMs*1000 + 1, WindowMs: windowMs,
		ScheduledMs: windowMs + s.SizeMs/2, ConfigID: "c-" + f.prefix}
}

// put claims a slot in the window, and commits.
func (f *fixture) put(t testing.TB, list ...slots.Slot) {
	t.Helper()
	ctx, tx := limited(t), began(t, f.store)
	_, ok, err := tx.Lock(ctx, list[0].Series, list[0].WindowMs, 1<<30)
	must(t, err, "lock")
	if !ok {
		t.Fatal("the window cannot be locked")
	}
	must(t, tx.Claim(ctx, list[0].Series, list[0].WindowMs, list), "claim")
	must(t, tx.Commit(ctx), "commit")
}

// wantCount compares a counter; -1 is no row.
func (f *fixture) wantCount(t testing.TB, s slots.Series, windowMs, want int64) {
	t.Helper()
	count, ok, err := f.store.Peek(limited(t), s, windowMs)
	must(t, err, "peek")
	if !ok {
		count = -1
	}
	if count != want {
		t.Errorf("window %d of %+v counts %d, want %d", windowMs, s, count, want)
	}
}

func checkProvision(t *testing.T, f *fixture) {
	for _, size := range []int64{100, 4000, 7000, 86_400_000} {
		for i, at := range []int64{0, -10 * size, 5 * size, day.UnixMilli() / size * size} {
			s := slots.Series{Scope: fmt.Sprint(f.prefix, "-", i), SizeMs: size}
			f.wantCount(t, s, at+2*size, -1)
			if n := provision(t, f.store, s, at, 3, nil); n != 3 {
				t.Errorf("%d rows were made of 3", n)
			}
			if n := provision(t, f.store, s, at-size, 5, nil); n != 2 {
				t.Errorf("%d rows were made of the 2 missing", n)
			}
			if n := provision(t, f.store, s, at-size, 5, nil); n != 0 {
				t.Errorf("%d rows were made where none was missing", n)
			}
			f.wantCount(t, s, at-2*size, -1)
			f.wantCount(t, s, at-size, 0)
			f.wantCount(t, s, at+3*size, 0)
			f.wantCount(t, s, at+4*size, -1)
		}
	}
	other := slots.Series{Scope: f.prefix + "x", SizeMs: 4000}
	f.wantCount(t, other, 0, -1)
	big := slots.Series{Scope: f.prefix + "big", SizeMs: 100}
	if n := provision(t, f.store, big, 0, 2500, nil); n != 2500 {
		t.Errorf("%d rows were made of 2500", n)
	}
}

// New rows count what is scheduled inside them under another size, and rows
// that are there keep their count.
func checkSeeding(t *testing.T, f *fixture) {
	at := day.UnixMilli() / 28_000 * 28_000 // a window starts here in both sizes
	s4, s7 := f.series(4000), f.series(7000)
	provision(t, f.store, s4, at, 7, nil)
	for i, ms := range []int64{0, 6999, 7000, 13_999, 14_000} {
		slot := f.slot(s4, (at+ms)/4000*4000, f.event(i))
		slot.ScheduledMs = at + ms
		f.put(t, slot)
	}
	alien := slots.Series{Scope: f.prefix + "x", SizeMs: 4000}
	provision(t, f.store, alien, at, 1, nil)
	f.put(t, f.slot(alien, at, f.event(9)))
	provision(t, f.store, s7, at, 4, nil)
	for i, want := range []int64{2, 2, 1, 0} {
		f.wantCount(t, s7, at+int64(i)*7000, want)
	}
	provision(t, f.store, s4, at, 7, nil)
	f.wantCount(t, s4, at+4000, 2)
}

func checkFrontier(t *testing.T, f *fixture) {
	ctx, s := limited(t), f.series(4000)
	for _, chunk := range []int64{0, -400_000, 400_000} {
		if _, ok, err := f.store.Frontier(ctx, s, chunk); ok || err != nil {
			t.Errorf("frontier of nothing: %v, %v", ok, err)
		}
		for i, end := range []int64{40_000, 80_000, 40_000} {
			provision(t, f.store, s, chunk, 1, &slots.Frontier{ChunkMs: chunk, EndMs: chunk + end})
			want := chunk + []int64{40_000, 80_000, 80_000}[i]
			if got, ok, err := f.store.Frontier(ctx, s, chunk); got != want || !ok || err != nil {
				t.Errorf("frontier %d, %v, %v; want %d", got, ok, err, want)
			}
		}
	}
	if _, ok, err := f.store.Frontier(ctx, f.series(5000), 0); ok || err != nil {
		t.Errorf("the frontier of another size is there: %v", err)
	}
}

// Lock gives a window only if it has room, and makes one that is not there.
func checkLock(t *testing.T, f *fixture) {
	ctx, s, at := limited(t), f.series(4000), day.UnixMilli()/4000*4000
	provision(t, f.store, s, at, 2, nil)
	f.put(t, f.slot(s, at, f.event(1)), f.slot(s, at, f.event(2)))
	tx := began(t, f.store)
	for _, c := range []struct {
		at, max, count int64
		ok             bool
	}{{at, 1, 0, false}, {at, 2, 0, false}, {at + 8000, 5, 0, true}, {at, 3, 2, true}} {
		count, ok, err := tx.Lock(ctx, s, c.at, c.max)
		must(t, err, "lock")
		if ok != c.ok || ok && count != c.count {
			t.Errorf("lock below %d: %d, %v; want %d, %v", c.max, count, ok, c.count, c.ok)
		}
	}
	// Another size counts the two in their windows, too; nobody sees it before the commit.
	if count, ok, err := tx.Lock(ctx, f.series(5000), at/5000*5000, 9); !ok || err != nil {
		t.Errorf("a window of another size: %d, %v, %v", count, ok, err)
	}
	if !f.Serial {
		f.wantCount(t, s, at+8000, -1)
	}
}

// A transaction cannot lock a window that another one has locked: it waits for a bounded time. A
// transaction that found a window full does not hold it after its end.
func checkLockHeld(t *testing.T, f *fixture) {
	if f.Serial {
		t.Skip("transactions wait for each other")
	}
	ctx, s, at := limited(t), f.series(4000), day.UnixMilli()/4000*4000
	provision(t, f.store, s, at, 5, nil)
	f.put(t, f.slot(s, at+4000, f.event(1)))
	one, two := began(t, f.store), began(t, f.db.Open(t))
	try := func(tx slots.Tx, who string, at, max int64, want bool) {
		t.Helper()
		_, ok, err := tx.Lock(ctx, s, at, max)
		if slots.KindOf(err) != slots.Held {
			must(t, err, who)
		}
		if ok != want {
			t.Errorf("%s got window %d: %v, want %v", who, at, ok, want)
		}
	}
	try(one, "the first", at, 5, true)
	try(two, "the second", at, 5, false)
	two.Rollback() // as after every error
	two = began(t, f.db.Open(t))
	try(one, "the first", at+4000, 1, false) // full
	one.Rollback()
	try(two, "the second", at+4000, 2, true)
	three := began(t, f.store)
	try(three, "the third", at, 5, true)
}

func checkClaim(t *testing.T, f *fixture) {
	ctx, s, at := limited(t), f.series(4000), day.UnixMilli()/4000*4000
	provision(t, f.store, s, at, 1, nil)
	tx := began(t, f.store)
	count, ok, err := tx.Lock(ctx, s, at, 10)
	must(t, err, "lock")
	list := []slots.Slot{f.slot(s, at, f.event(1)), f.slot(s, at, f.event(2)), f.slot(s, at, f.event(3))}
	if !ok || count != 0 {
		t.Fatalf("lock: %d, %v", count, ok)
	}
	must(t, tx.Claim(ctx, s, at, list), "claim")
	if !f.Serial { // nobody sees it yet
		f.wantCount(t, s, at, 0)
		if found, err := f.store.Find(ctx, []string{f.event(1)}); len(found) > 0 || err != nil {
			t.Errorf("a slot is seen before its transaction is committed: %v", err)
		}
	}
	must(t, tx.Commit(ctx), "commit")
	tx.Rollback() // does nothing
	f.wantCount(t, s, at, 3)
	f.audit(t, s, 3)
}

func checkRollback(t *testing.T, f *fixture) {
	ctx, s, at := limited(t), f.series(4000), day.UnixMilli()/4000*4000
	provision(t, f.store, s, at, 1, nil)
	tx := began(t, f.store)
	_, _, err := tx.Lock(ctx, s, at, 10)
	must(t, err, "lock")
	slot := f.slot(s, at, f.event(1))
	must(t, tx.Claim(ctx, s, at, []slots.Slot{slot}), "claim")
	tx.Rollback()
	tx.Rollback()
	f.wantCount(t, s, at, 0)
	if found, err := f.store.Find(ctx, []string{f.event(1)}); len(found) > 0 || err != nil {
		t.Errorf("after a rollback: %+v, %v", found, err)
	}
	f.put(t, slot) // the same ids again
	f.wantCount(t, s, at, 1)
}

// An event that has a slot gets no second one, in any window, alone or in a batch.
func checkDuplicate(t *testing.T, f *fixture) {
	ctx, s, at := limited(t), f.series(4000), day.UnixMilli()/4000*4000
	provision(t, f.store, s, at, 2, nil)
	f.put(t, f.slot(s, at, f.event(1)))
	for _, events := range [][]string{{f.event(1)}, {f.event(2), f.event(1), f.event(3)}} {
		tx := began(t, f.store)
		_, _, err := tx.Lock(ctx, s, at+4000, 10)
		must(t, err, "lock")
		var list []slots.Slot
		for _, e := range events {
			list = append(list, f.slot(s, at+4000, e))
		}
		err = tx.Claim(ctx, s, at+4000, list)
		if kind := slots.KindOf(err); err == nil || kind != slots.Duplicate {
			t.Errorf("a second slot for an event: %v (%v), want a duplicate", err, kind)
		}
		tx.Rollback()
		f.wantCount(t, s, at+4000, 0)
	}
	found, err := f.store.Find(ctx, []string{f.event(1), f.event(2), f.event(3)})
	if err != nil || len(found) != 1 || found[0].WindowMs != at {
		t.Errorf("found %+v, %v", found, err)
	}
}

// Of two transactions with the same event the second has to wait, and fails if
// the first is committed.
func checkPending(t *testing.T, f *fixture) {
	if f.Serial {
		t.Skip("transactions wait for each other")
	}
	for i, commit := range []bool{true, false} {
		ctx, s, at := limited(t), f.series(4000+int64(i)*1000), int64(0)
		provision(t, f.store, s, at, 2, nil)
		one, two := began(t, f.store), began(t, f.store)
		event := f.event(i)
		for k, tx := range []slots.Tx{one, two} {
			if _, ok, err := tx.Lock(ctx, s, at+int64(k)*s.SizeMs, 10); !ok || err != nil {
				t.Fatalf("lock: %v, %v", ok, err)
			}
		}
		must(t, one.Claim(ctx, s, at, []slots.Slot{f.slot(s, at, event)}), "claim")
		done := make(chan error, 1)
		go func() {
			done <- two.Claim(ctx, s, at+s.SizeMs, []slots.Slot{f.slot(s, at+s.SizeMs, event)})
		}()
		select {
		case err := <-done:
			t.Fatalf("the second claim did not wait: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		if commit {
			must(t, one.Commit(ctx), "commit")
		} else {
			one.Rollback()
		}
		err := <-done
		switch {
		case commit && slots.KindOf(err) != slots.Duplicate:
			t.Errorf("the second claim ended with %v, want a duplicate", err)
		case !commit && err != nil:
			t.Errorf("the second claim ended with %v, want success", err)
		}
		two.Rollback()
	}
}

// Slots come back as they were given, to the last microsecond.
func checkFind(t *testing.T, f *fixture) {
	ctx, before := limited(t), time.Now().Add(-time.Hour)
	var want []slots.Slot
	var ids []string
	for i, size := range []int64{100, 7000, 86_400_000} {
		s := f.series(size)
		for k, at := range []int64{0, -3 * size, day.UnixMilli() / size * size,
			day.Add(time.Hour).UnixMilli() / size * size} {
			provision(t, f.store, s, at, 1, nil)
			slot := f.slot(s, at, f.event(10*i+k))
			slot.RequestedUs, slot.ScheduledMs = at*1000+99_999, at+size-1
			f.put(t, slot)
			want, ids = append(want, slot), append(ids, slot.EventID)
		}
	}
	for i := range slots.MaxBatch - len(ids) {
		ids = append(ids, fmt.Sprintf("%s-nobody%d", f.prefix, i))
	}
	found, err := f.store.Find(ctx, ids)
	must(t, err, "find")
	if len(found) != len(want) {
		t.Fatalf("%d slots were found, want %d", len(found), len(want))
	}
	for _, slot := range found {
		if !slices.ContainsFunc(want, func(w slots.Slot) bool { return same(w, slot) }) {
			t.Errorf("found %+v, which was not given", slot)
		}
		if created := time.UnixMicro(slot.CreatedUs); created.Before(before) || created.After(time.Now().Add(time.Hour)) {
			t.Errorf("created at %v, and it is %v", created, time.Now())
		}
	}
	if found, err := f.store.Find(ctx, nil); len(found) > 0 || err != nil {
		t.Errorf("find nothing: %+v, %v", found, err)
	}
}

// Event ids that are alike are not the same.
func checkApart(t *testing.T, f *fixture) {
	ctx, s := limited(t), f.series(4000)
	provision(t, f.store, s, 0, 1, nil)
	p := f.prefix
	ids := []string{p + "a", p + "A", p + "a ", " " + p + "a", p + "ä", p + "a\u0308", p + "ß", p + "ss", p + "😀",
		p + "'\"\\;--", p + "%", p + "_",
		p + strings.Repeat("x", slots.MaxEventID-len(p)), p + strings.Repeat("x", slots.MaxEventID-len(p)-1)}
	for _, id := range ids {
		f.put(t, f.slot(s, 0, id))
	}
	for _, id := range ids {
		found, err := f.store.Find(ctx, []string{id})
		if err != nil || len(found) != 1 || found[0].EventID != id {
			t.Errorf("find %q: %+v, %v", id, found, err)
		}
	}
	f.wantCount(t, s, 0, int64(len(ids)))
	upper := slots.Series{Scope: strings.ToUpper(f.prefix), SizeMs: 4000}
	f.wantCount(t, upper, 0, -1)
}

func checkScout(t *testing.T, f *fixture) {
	ctx := limited(t)
	for i, at := range []int64{0, -70_000, day.UnixMilli() / 7000 * 7000} {
		s := slots.Series{Scope: fmt.Sprint(f.prefix, i), SizeMs: 7000}
		provision(t, f.store, s, at, 4, nil)
		provision(t, f.store, s, at+5*7000, 1, nil) // the one before is missing
		for k, n := range []int{2, 1, 2} {
			for e := range n {
				f.put(t, f.slot(s, at+int64(k)*7000, f.event(100*i+10*k+e)))
			}
		}
		for _, c := range []struct{ from, to, max, want int64 }{
			{0, 10, 3, 0}, {0, 10, 2, 1}, {0, 10, 1, 3}, {2, 10, 2, 3}, {0, 3, 1, -1}, {0, 1, 2, -1}, {4, 10, 1, 4},
			{6, 10, 9, 6}, {3, 3, 9, -1},
		} {
			got, ok, err := f.store.Scout(ctx, s, at+c.from*7000, at+c.to*7000, c.max)
			must(t, err, "scout")
			if ok != (c.want >= 0) || ok && got != at+c.want*7000 {
				t.Errorf("scout %+v: %d, %v", c, (got-at)/7000, ok)
			}
		}
	}
}

// Statements end with their context and do no harm to those that follow.
func checkCancelled(t *testing.T, f *fixture) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	s := f.series(4000)
	provision(t, f.store, s, 0, 1, nil)
	for range 40 { // more than there are connections
		if _, err := f.store.Find(gone, []string{f.event(1)}); !errors.Is(err, context.Canceled) {
			t.Fatalf("find with a context that has ended: %v", err)
		}
		if _, err := f.store.Begin(gone, ""); !errors.Is(err, context.Canceled) {
			t.Fatalf("begin with a context that has ended: %v", err)
		}
		ctx, end := context.WithCancel(context.Background())
		tx, err := f.store.Begin(ctx, "")
		must(t, err, "begin")
		end()
		if _, _, err := tx.Lock(ctx, s, 0, 1); err == nil {
			t.Fatal("a lock was given to a context that has ended")
		}
		tx.Rollback()
	}
	f.put(t, f.slot(s, 0, f.event(1)))
	f.wantCount(t, s, 0, 1)
}

// Provisioning waits for no window that somebody holds.
func checkProvisionBesideLock(t *testing.T, f *fixture) {
	if f.Serial {
		t.Skip("transactions wait for each other")
	}
	ctx, s := limited(t), f.series(4000)
	provision(t, f.store, s, 0, 3, nil)
	tx := began(t, f.store)
	if _, ok, err := tx.Lock(ctx, s, 4000, 5); !ok || err != nil {
		t.Fatal(ok, err)
	}
	must(t, tx.Claim(ctx, s, 4000, []slots.Slot{f.slot(s, 4000, f.event(1))}), "claim")
	// ends, though the window is held
	if n := provision(t, f.store, s, 0, 10, &slots.Frontier{ChunkMs: 0, EndMs: 40_000}); n != 7 {
		t.Errorf("%d rows were made, want 7", n)
	}
	must(t, tx.Commit(ctx), "commit")
	f.wantCount(t, s, 4000, 1)
}

// Many who provision overlapping chunks make every row once.
func checkProvisionTogether(t *testing.T, f *fixture) {
	s, ctx := f.series(4000), limited(t)
	stores := []slots.Store{f.store, f.db.Open(t)}
	together(24, func(i int) {
		from := int64(i%5) * 10 * 4000
		err := persistently(ctx, func() error {
			_, err := stores[i%2].Provision(ctx, s, from, from+100*4000, &slots.Frontier{ChunkMs: from, EndMs: from + 100*4000})
			return err
		})
		if err != nil {
			t.Errorf("provision: %v", err)
		}
	})
	windows, err := AllWindows(ctx, f.store, s, 0, 1000*4000)
	must(t, err, "windows")
	if len(windows) != 140 {
		t.Errorf("%d windows, want 140", len(windows))
	}
}
