package slotstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// earliestChecks are about the earliest window with room, whatever happens meanwhile.
func earliestChecks() []check {
	return []check{
		{"ResizedByAnotherNode", checkResizedElsewhere}, {"SameSizeInOneScope", checkSameSize},
		{"PauseInForce", checkPauseInForce},
		{"ScopeKept", checkScopeKept}, {"NoHoles", checkNoHoles}, {"FarBacklog", checkFarBacklog},
		{"MaxDelay", checkMaxDelay}, {"MaxDelayTogether", checkMaxDelayTogether},
	}
}

// checkResizedElsewhere: a size that goes and comes back on one node leaves no hole for
// another.
func checkResizedElsewhere(t *testing.T, f *fixture) {
	nodes := f.nodes(t, 2, slots.Settings{})
	at := time.UnixMilli(day.UnixMilli() / 28_000 * 28_000)
	f.config(t, nodes[0], 2, 4000)
	f.assignN(t, nodes[1], 0, 3, at) // 2, 1
	f.config(t, nodes[0], 2, 2000)
	f.config(t, nodes[0], 2, 4000)
	if got := f.assignN(t, nodes[1], 3, 6, at); got[at.UnixMilli()+4000] != 1 || got[at.UnixMilli()+8000] != 2 {
		t.Errorf("windows of 4 s from %d on had 2 and 1 of 2; three more went to %v", at.UnixMilli(), got)
	}
}

// checkSameSize: configs of one scope that are brought to one size count each other.
func checkSameSize(t *testing.T, f *fixture) {
	ctx, s := limited(t), f.nodes(t, 1, slots.Settings{})[0]
	at := time.UnixMilli(day.UnixMilli() / 28_000 * 28_000)
	put := func(name string, sizeMs int64) {
		t.Helper()
		_, err := s.PutConfig(ctx, slots.NewConfig{Name: f.prefix + name, Max: 4, SizeMs: sizeMs,
			Options: slots.Options{Scope: f.prefix}})
		must(t, err, "put")
	}
	put("a", 4000)
	put("b", 7000)
	n := 0
	assign := func(name string) slots.Result {
		t.Helper()
		n++
		res, err := s.Assign(ctx, slots.Request{EventID: f.event(n), ConfigName: f.prefix + name, At: at})
		must(t, err, "assign")
		return res
	}
	for range 3 {
		assign("a")
		assign("b")
	}
	put("b", 4000)
	counts := f.scheduled(t, at, 4000)
	for i := range 12 {
		window := int64(0)
		for counts[window] >= 4 {
			window++
		}
		counts[window]++
		if res := assign([]string{"a", "b"}[i%2]); res.WindowMs != at.UnixMilli()+window*4000 {
			t.Fatalf("event %d is in window %d, want %d", n, (res.WindowMs-at.UnixMilli())/4000, window)
		}
	}
}

// checkPauseInForce: when a pause is answered, not one slot is given any more, on
// whatever node, until it ends.
func checkPauseInForce(t *testing.T, f *fixture) {
	nodes := f.nodes(t, 3, slots.Settings{})
	f.config(t, nodes[0], 5, 4000)
	whole := limited(t)
	ctx, stop := context.WithCancel(whole)
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	for c := range 12 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// Not with ctx: a search whose caller is gone may still commit while the audit reads.
				if _, err := nodes[1+c%2].Assign(whole,
					f.request(100_000*(c+1)+n, day.Add(time.Duration(n)*time.Second))); err != nil {
					rest(ctx, time.Millisecond) // a pause is answered at once: asking on would only cost CPU
				}
			}
		})
	}
	pause := func(max int64) {
		t.Helper()
		for {
			_, err := nodes[0].PutConfig(whole, slots.NewConfig{Name: f.prefix, Max: max, SizeMs: 4000})
			if !errors.As(err, new(*slots.RetryError)) || whole.Err() != nil {
				must(t, err, "put a config")
				return
			}
		}
	}
	mine := func() (n int) {
		for _, s := range f.all(t) {
			if s.Scope == f.prefix {
				n++
			}
		}
		return n
	}
	for range 10 {
		time.Sleep(10 * time.Millisecond)
		pause(0)
		before := mine()
		time.Sleep(20 * time.Millisecond)
		if after := mine(); after != before {
			t.Errorf("%d slots were given during a pause", after-before)
		}
		pause(5)
	}
	stop()
	load.Wait()
	f.audit(t, f.series(4000), 5)
}

// checkScopeKept: a config that has slots keeps its scope; one that has none may get
// another.
func checkScopeKept(t *testing.T, f *fixture) {
	ctx, s := limited(t), f.nodes(t, 1, slots.Settings{})[0]
	f.config(t, s, 5, 4000)
	other := slots.NewConfig{Name: f.prefix, Max: 5, SizeMs: 4000, Options: slots.Options{Scope: f.prefix + "-pool"}}
	_, err := s.PutConfig(ctx, other)
	must(t, err, "give a config without slots a scope")
	f.assignN(t, s, 0, 1, day)
	other.Options.Scope = ""
	if _, err := s.PutConfig(ctx, other); !errors.Is(err, slots.ErrScopeInUse) {
		t.Errorf("a config with slots leaves its scope: %v", err)
	}
	if c, err := s.Config(ctx, f.prefix); err != nil || c.Options.Scope != f.prefix+"-pool" {
		t.Errorf("after that: %+v, %v", c, err)
	}
	f.named().scopeLeftDuringClaim(t)
}

// scopeLeftDuringClaim: the first slot of a config is claimed while it is to get another
// scope.
func (f *fixture) scopeLeftDuringClaim(t *testing.T) {
	ctx, s := limited(t), f.nodes(t, 1, slots.Settings{})[0]
	c := f.config(t, s, 5, 4000)
	tx, err := f.store.Begin(ctx, c.ID)
	must(t, err, "begin")
	defer tx.Rollback()
	_, ok, err := tx.Lock(ctx, f.series(4000), 0, 5)
	must(t, err, "lock")
	if !ok {
		t.Fatal("an empty window is full")
	}
	must(t, tx.Claim(ctx, f.series(4000), 0, []slots.Slot{f.slot(f.series(4000), 0, f.event(1))}), "claim")
	left := make(chan error, 1)
	go func() {
		_, err := s.PutConfig(ctx, slots.NewConfig{Name: f.prefix, Max: 5, SizeMs: 4000,
			Options: slots.Options{Scope: f.prefix + "-pool"}})
		left <- err
	}()
	time.Sleep(100 * time.Millisecond) // it waits for the claim by then, or will find it done
	must(t, tx.Commit(ctx), "commit")
	if err := <-left; !errors.Is(err, slots.ErrScopeInUse) {
		t.Errorf("a config leaves its scope while its first slot is claimed: %v", err)
	}
}

// checkNoHoles: events for one instant, then events all over the next minute, fill
// windows one after the other, by one process and by three.
func checkNoHoles(t *testing.T, f *fixture) {
	const events, room = 500, 50
	for _, processes := range []int{1, 3} {
		g := f.named()
		nodes, held := g.watchedNodes(t, processes)
		g.config(t, nodes[0], room, 4000)
		first := time.UnixMilli(plan.WindowStart(day.UnixMicro(), 4000))
		for phase := range 2 {
			together(32, func(c int) {
				for i := c; i < events; i += 32 {
					at := first.Add(time.Duration(phase*i) * 30 * time.Second / events)
					if _, err := persist(limited(t), nodes[i%processes], g.request(phase*events+i, at)); err != nil {
						t.Errorf("assign: %v", err)
					}
				}
			})
		}
		g.audit(t, g.series(4000), room)
		if n, spare := len(g.slotsOf(t, g.series(4000))), int(held.Load()); n < 2*events/room || n > 2*events/room+spare {
			t.Errorf("%d processes: %d windows are used, want %d; a window was held %d times", processes, n,
				2*events/room, spare)
		}
	}
}

// checkFarBacklog: behind full windows, an event for any time gets the first one with
// room at once, also from a process that has just started.
func checkFarBacklog(t *testing.T, f *fixture) {
	const full = 1500
	node := f.nodes(t, 1, slots.Settings{})[0]
	f.config(t, node, 1, 4000)
	first := plan.WindowStart(day.UnixMicro(), 4000)
	rs := make([]slots.Request, 500)
	for n := 0; n < full; n += len(rs) {
		for i := range rs {
			rs[i] = f.request(n+i, time.UnixMilli(first))
		}
		for _, b := range node.AssignBatch(limited(t), rs) {
			must(t, b.Err, "assign")
		}
	}
	store, counter := Count(f.db.Open(t))
	cold := f.scheduler(t, store, slots.Settings{})
	for i, from := range []int64{0, 700, 1499} {
		counter.Take()
		res, err := cold.Assign(limited(t), slots.Request{EventID: f.event(full + i), ConfigName: f.prefix,
			At: time.UnixMilli(first + from*4000)})
		must(t, err, "assign")
		if want := first + int64(full+i)*4000; res.WindowMs != want {
			t.Errorf("from window %d: %d, want %d", from, (res.WindowMs-first)/4000, full+i)
		}
		if got := counter.Take(); got["lock"] > 3 || got["scout"] > 2 {
			t.Errorf("from window %d: %s", from, fmt.Sprint(got))
		}
	}
}

// delayConfig puts a config of the test's own name: 2 in 4 s, none later than 12 s.
func (f *fixture) delayConfig(t *testing.T, s *slots.Scheduler, o slots.Options) {
	t.Helper()
	o.MaxDelayMs = 12_000
	_, err := s.PutConfig(limited(t), slots.NewConfig{Name: f.prefix, Max: 2, SizeMs: 4000, Options: o})
	must(t, err, "put a config")
}

// tooLate fails the test unless the error says that the first window with room begins at free.
func tooLate(t *testing.T, err error, free time.Time) {
	t.Helper()
	var late *slots.DelayError
	if !errors.As(err, new(*slots.RetryError)) || !errors.As(err, &late) || late.FreeMs != free.UnixMilli() ||
		late.MaxDelay != 12*time.Second {
		t.Errorf("%+v (%v), want that the first window with room begins at %v", err, late, free)
	}
}

// checkMaxDelay: an event gets no slot beyond the config's delay but the first instant with room, whatever window of
// its reach it begins in; and it keeps a slot that it has.
func checkMaxDelay(t *testing.T, f *fixture) {
	for _, o := range []slots.Options{{}, {Stratified: true}} {
		g := f.named()
		g.engine = f.engine
		ctx, nodes := limited(t), g.nodes(t, 2, slots.Settings{})
		g.delayConfig(t, nodes[0], o)
		at := time.UnixMilli(day.UnixMilli() / 4000 * 4000)
		g.assignN(t, nodes[0], 0, 6, at) // three windows within 12 s
		for i, s := range nodes {
			for range 2 { // knowing nothing, and with full windows in the cache
				_, err := s.Assign(ctx, g.request(6, at))
				tooLate(t, err, at.Add(12*time.Second))
			}
			if res, err := s.Assign(ctx, g.request(0, at)); err != nil || !res.Replayed {
				t.Errorf("node %d, an event that has its slot: %+v, %v", i, res, err)
			}
		}
		// In the middle of the first window its reach ends in the middle of the fourth, which does not lie in it.
		_, err := nodes[1].Assign(ctx, g.request(7, at.Add(2*time.Second)))
		tooLate(t, err, at.Add(12*time.Second))
		res, err := nodes[1].Assign(ctx, g.request(7, at.Add(4*time.Second)))
		if err != nil || res.WindowMs != at.UnixMilli()+12_000 || res.Delay() > 12*time.Second {
			t.Errorf("from the second window on: %+v, %v", res, err)
		}
		tooLate(t, g.assignSuperseded(t, at), at.Add(16*time.Second))
		if _, err := nodes[0].PutConfig(ctx, slots.NewConfig{Name: g.prefix, Max: 2, SizeMs: 4000}); err != nil {
			t.Fatal(err)
		}
		if res, err := nodes[1].Assign(ctx, g.request(6, at)); err != nil || res.WindowMs != at.UnixMilli()+16_000 {
			t.Errorf("without a bound: %+v, %v", res, err)
		}
		g.audit(t, g.series(4000), 2)
	}
}

// shareSearch has two events share a search, one of which may have windows up to the first with room.
func (f *fixture) shareSearch(ctx context.Context, t *testing.T) {
	t.Helper()
	g := f.named()
	first := day.UnixMilli() / 4000 * 4000
	full, err := assign(ctx, f.on(f.store), g.search(g.series(4000), first*1000, 1, g.event(0), g.event(1), g.event(2)))
	must(t, err, "fill three windows")
	s := g.search(g.series(4000), first*1000, 1, g.event(3), g.event(4))
	s.FirstMs, s.FromMs, s.EndMs, s.Mixed = first-4000, first, first+20_000, true
	for i := range s.Asks {
		s.Asks[i].FromMs, s.Asks[i].EndMs = first, first+int64(3+2*i)*4000
	}
	found, err := assign(ctx, f.on(f.store), s)
	if err != nil || full.Answers[2].Slot.WindowMs != first+8000 || found.Answers[0].Status != slots.Unplaced ||
		found.Answers[1].Slot.WindowMs != first+12_000 {
		t.Errorf("%+v, then %+v, %v: want no slot, and the fourth window", full, found, err)
	}
}

// assignSuperseded asks for two events in the second window on a node that hears again and again that its version of
// the config is superseded, so that it goes on in turn.
func (f *fixture) assignSuperseded(t *testing.T, at time.Time) error {
	t.Helper()
	tries := 0
	s := f.scheduler(t, Watch(f.store, Watcher{Before: func(_ context.Context, op string) error {
		if tries++; tries <= 3 && (op == "find" || op == "call") {
			return &slots.StoreError{Kind: slots.Superseded, Op: op, Err: errors.New("injected")}
		}
		return nil
	}}), slots.Settings{})
	if res, err := s.Assign(limited(t), f.request(8, at.Add(4*time.Second))); err != nil ||
		res.WindowMs != at.UnixMilli()+12_000 {
		t.Errorf("in turn: %+v, %v", res, err)
	}
	tries = 0
	_, err := s.Assign(limited(t), f.request(9, at.Add(4*time.Second)))
	return err
}

// checkMaxDelayTogether: events that share searches have reaches of their own.
func checkMaxDelayTogether(t *testing.T, f *fixture) {
	f.shareSearch(t.Context(), t)
	nodes := f.nodes(t, 2, slots.Settings{})
	f.delayConfig(t, nodes[0], slots.Options{})
	at := time.UnixMilli(day.UnixMilli() / 4000 * 4000)
	const events = 60
	results := make([]error, events)
	var slot [events]slots.Slot
	together(events, func(i int) {
		res, err := nodes[i%2].Assign(limited(t), f.request(i, at.Add(time.Duration(i%5)*4*time.Second)))
		slot[i], results[i] = res.Slot, err
	})
	placed := 0
	for i, err := range results {
		var late *slots.DelayError
		switch {
		case err == nil:
			placed++
			if d := slot[i].Delay(); d < 0 || d >= 12*time.Second {
				t.Errorf("event %d is %v late", i, d)
			}
		case !errors.As(err, &late):
			t.Errorf("event %d: %v", i, err)
		case late.FreeMs != 0 && late.FreeMs < at.UnixMilli()+int64(i%5+3)*4000:
			t.Errorf("event %d of window %d is told that there is room at %d", i, i%5, late.FreeMs-at.UnixMilli())
		}
	}
	if placed != 14 { // two in each of seven windows
		t.Errorf("%d events have slots, want 14", placed)
	}
	f.audit(t, f.series(4000), 2)
}
