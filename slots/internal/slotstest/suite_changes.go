package slotstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// checkRaise: what is used counts, and windows that were full have room again,
// on the node that changes the config at once.
func checkRaise(t *testing.T, f *fixture) {
	s := f.nodes(t, 1, slots.Settings{})[0]
	f.config(t, s, 4, 4000)
	at := time.UnixMilli(plan.WindowStart(day.UnixMicro(), 4000))
	f.assignN(t, s, 0, 10, at) // 4, 4, 2
	f.config(t, s, 7, 4000)
	got := f.assignN(t, s, 10, 20, at) // 3, 3, 4
	for i, want := range []int{3, 3, 4} {
		if n := got[at.UnixMilli()+int64(i)*4000]; n != want {
			t.Errorf("window %d got %d more, want %d", i, n, want)
		}
	}
	f.audit(t, f.series(4000), 7)
}

// checkLower: a lower limit counts what is used, and moves no slot.
func checkLower(t *testing.T, f *fixture) {
	s := f.nodes(t, 1, slots.Settings{})[0]
	f.config(t, s, 8, 4000)
	at := time.UnixMilli(plan.WindowStart(day.UnixMicro(), 4000))
	f.assignN(t, s, 0, 20, at) // 8, 8, 4
	before := f.slotsOf(t, f.series(4000))
	f.config(t, s, 5, 4000)
	if got := f.assignN(t, s, 20, 24, at); got[at.UnixMilli()+8000] != 1 || got[at.UnixMilli()+12_000] != 3 {
		t.Errorf("after lowering the windows got %v", got)
	}
	f.config(t, s, 0, 4000)
	_, err := s.Assign(limited(t), f.request(30, at.Add(time.Hour)))
	if !errors.Is(err, slots.ErrPaused) || !errors.As(err, new(*slots.RetryError)) {
		t.Errorf("while paused: %v", err)
	}
	if res, err := s.Assign(limited(t), f.request(3, at)); err != nil || !res.Replayed {
		t.Errorf("a repeat while paused: %+v, %v", res, err)
	}
	f.wantCount(t, f.series(4000), at.Add(time.Hour).UnixMilli()/4000*4000, -1) // nothing was written
	after := f.slotsOf(t, f.series(4000))
	for window, list := range before {
		for _, slot := range list {
			if !slices.Contains(after[window], slot) {
				t.Errorf("slot %+v was changed", slot)
			}
		}
	}
	f.config(t, s, 9, 4000)
	if got := f.assignN(t, s, 30, 31, at); got[at.UnixMilli()] != 1 {
		t.Errorf("after the pause: %v", got)
	}
	f.audit(t, f.series(4000), 9)
}

// checkResize: a new size counts what is scheduled already.
func checkResize(t *testing.T, f *fixture) {
	s := f.nodes(t, 1, slots.Settings{})[0]
	at := time.UnixMilli(day.UnixMilli() / 28_000 * 28_000)
	f.config(t, s, 6, 4000)
	f.assignN(t, s, 0, 42, at) // 28 s, full
	before := f.scheduled(t, at, 7000)
	f.config(t, s, 11, 7000)
	f.assignN(t, s, 100, 140, at)
	f.wantNoMore(t, at, 7000, 11, before)
}

// checkResizeBack: and so does the old size, when it comes back.
func checkResizeBack(t *testing.T, f *fixture) {
	s := f.nodes(t, 1, slots.Settings{})[0]
	at := time.UnixMilli(day.UnixMilli() / 28_000 * 28_000)
	f.config(t, s, 4, 4000)
	f.assignN(t, s, 0, 5, at) // provisions rows that count none
	f.config(t, s, 7, 7000)
	f.assignN(t, s, 100, 128, at)
	before := f.scheduled(t, at, 4000)
	f.config(t, s, 4, 4000)
	f.assignN(t, s, 200, 220, at)
	f.wantNoMore(t, at, 4000, 4, before)
}

// scheduled counts the slots of the scope in each stretch of the size from the
// instant on, whatever window they were assigned to.
func (f *fixture) scheduled(t *testing.T, at time.Time, sizeMs int64) map[int64]int64 {
	t.Helper()
	counts := map[int64]int64{}
	for _, s := range f.all(t) {
		if s.Scope == f.prefix {
			counts[(s.ScheduledMs-at.UnixMilli())/sizeMs]++
		}
	}
	return counts
}

// wantNoMore: no stretch has got more than max, unless it had more before.
func (f *fixture) wantNoMore(t *testing.T, at time.Time, sizeMs, limit int64, before map[int64]int64) {
	t.Helper()
	for i, n := range f.scheduled(t, at, sizeMs) {
		if n > max(limit, before[i]) {
			t.Errorf("window %d of %d ms has %d events of at most %d; it had %d", i, sizeMs, n, limit, before[i])
		}
	}
}

// checkChanges: limits hold while two admins change a config that is in use.
func checkChanges(t *testing.T, f *fixture) {
	nodes := f.nodes(t, 2, slots.Settings{})
	f.config(t, nodes[0], 5, 4000)
	ctx, stop := context.WithCancel(limited(t))
	var admins sync.WaitGroup
	for i := range 2 {
		admins.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := nodes[i].PutConfig(limited(t), slots.NewConfig{Name: f.prefix, Max: int64(1 + (n+i)%8), SizeMs: 4000})
				if err != nil && !errors.As(err, new(*slots.RetryError)) && !errors.Is(err, slots.ErrConflict) {
					t.Errorf("put: %v", err)
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	var longest atomic.Int64
	together(16, func(i int) {
		for n := range 8 {
			began := time.Now()
			_, err := persist(limited(t), nodes[i%2], f.request(100*i+n, day.Add(time.Duration(i)*time.Second)))
			longest.Store(max(longest.Load(), int64(time.Since(began))))
			if err != nil {
				t.Errorf("assign: %v", err)
			}
		}
	})
	stop()
	admins.Wait()
	// Without turns they starve until their timeout; a busy machine alone takes some seconds.
	if wait := time.Duration(longest.Load()); wait > 20*time.Second {
		t.Errorf("an event waited for %v while configs changed", wait)
	}
	f.audit(t, f.series(4000), 8)
	active := 0
	configs, err := f.store.ActiveConfigs(limited(t), 10_000)
	must(t, err, "configs")
	for _, c := range configs {
		if c.Name == f.prefix {
			active++
		}
	}
	if active != 1 {
		t.Errorf("%d versions are active", active)
	}
}

// checkFasterChanges: an event gets its slot although its config changes before each claim,
// and none by a version that is paused.
func checkFasterChanges(t *testing.T, f *fixture) {
	admin := f.nodes(t, 1, slots.Settings{})[0]
	f.config(t, admin, 5, 4000)
	n := 0
	store := Watch(f.store, Watcher{Before: func(ctx context.Context, op string) error {
		if op == "begin" || op == "place" || op == "call" {
			n++
			f.config(t, admin, int64(1+n%5), 4000)
		}
		return nil
	}})
	s := f.scheduler(t, store, slots.Settings{Timeout: 20 * time.Second})
	for i := range 7 {
		if _, err := s.Assign(limited(t), f.request(i, day)); err != nil {
			t.Fatalf("event %d after %d changes: %v", i, n, err)
		}
	}
	f.audit(t, f.series(4000), 5)
	f.config(t, admin, 0, 4000)
	if _, err := s.Assign(limited(t), f.request(7, day)); !errors.Is(err, slots.ErrPaused) {
		t.Errorf("while paused: %v", err)
	}
}

// checkNames: each name has counters of its own, unless a scope is shared.
func checkNames(t *testing.T, f *fixture) {
	s := f.nodes(t, 1, slots.Settings{})[0]
	ctx, at := limited(t), time.UnixMilli(plan.WindowStart(day.UnixMicro(), 4000))
	shared := f.prefix + "-pool"
	for i := range 6 {
		c := slots.NewConfig{Name: fmt.Sprintf("%s-%d", f.prefix, i), Max: int64(2 + i), SizeMs: 4000}
		if i >= 3 {
			c.Options.Scope = shared
		}
		put, err := s.PutConfig(ctx, c)
		must(t, err, "put")
		if got, err := s.Config(ctx, c.Name); err != nil || got.ID != put.ID || got.Max != c.Max ||
			got.Options.Scope != c.Options.Scope || !got.Active {
			t.Errorf("put %+v, got %+v, %v", c, got, err)
		}
	}
	for n := range 48 {
		r := slots.Request{EventID: f.event(n), ConfigName: fmt.Sprintf("%s-%d", f.prefix, n%6), At: at}
		_, err := s.Assign(ctx, r)
		must(t, err, "assign")
	}
	for i := range 3 {
		f.audit(t, slots.Series{Scope: fmt.Sprintf("%s-%d", f.prefix, i), SizeMs: 4000}, int64(2+i))
	}
	f.audit(t, slots.Series{Scope: shared, SizeMs: 4000}, 7)
	f.wantCount(t, slots.Series{Scope: shared, SizeMs: 4000}, at.UnixMilli(), 7) // of the highest limit
}
