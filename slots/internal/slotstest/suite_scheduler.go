package slotstest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
	"github.com/headgate-rls/headgate/test/random"
)

// schedulerChecks are about a Scheduler with an engine on a store.
func schedulerChecks() []check {
	return []check{
		{"Duplicates", checkDuplicates}, {"Batch", checkBatch}, {"BatchesCross", checkCross}, {"CrowdOfNodes", checkNodes},
		{"Raise", checkRaise}, {"LowerAndPause", checkLower}, {"Resize", checkResize}, {"ResizeAndBack", checkResizeBack},
		{"ChangesInFlight", checkChanges}, {"FasterChanges", checkFasterChanges},
		{"Names", checkNames}, {"Times", checkTimes}, {"Before1970", checkBefore1970}, {"Sizes", checkSizes},
		{"HeldWindowScheduler", checkHeldScheduler}, {"HeldTogether", checkHeldTogether},
		{"ConnectionsCut", checkCut}, {"Burst", checkBurst},
	}
}

// at is an event of the config with the fixture's name.
func (f *fixture) request(n int, at time.Time) slots.Request {
	return slots.Request{EventID: f.event(n), ConfigName: f.prefix, At: at}
}

// persist assigns, asking again while that is said to be worth it.
func persist(ctx context.Context, s *slots.Scheduler, r slots.Request) (slots.Result, error) {
	for {
		res, err := s.Assign(ctx, r)
		var again *slots.RetryError
		if err == nil || ctx.Err() != nil || !errors.As(err, &again) {
			return res, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(again.After, 20*time.Millisecond)):
		}
	}
}

// persistBatch is persist for a batch.
func persistBatch(ctx context.Context, s *slots.Scheduler, rs []slots.Request) []slots.BatchResult {
	for {
		out := s.AssignBatch(ctx, rs)
		again := func(b slots.BatchResult) bool { return errors.As(b.Err, new(*slots.RetryError)) }
		if ctx.Err() != nil || !slices.ContainsFunc(out, again) {
			return out
		}
		rest(ctx, 20*time.Millisecond)
	}
}

// nodes are Schedulers with connections of their own.
func (f *fixture) nodes(t *testing.T, n int, s slots.Settings) []*slots.Scheduler {
	all := []*slots.Scheduler{f.scheduler(t, f.store, s)}
	for len(all) < n {
		all = append(all, f.scheduler(t, f.db.Open(t), s))
	}
	return all
}

// watchedNodes are nodes, and how often the store told one of them that another holds a
// window for too long. On a machine that stops for a second each time may leave a window that
// has room behind: later ones are used instead.
func (f *fixture) watchedNodes(t *testing.T, n int) (all []*slots.Scheduler, held *atomic.Int64) {
	held = new(atomic.Int64)
	for i := range n {
		store := f.store
		if i > 0 {
			store = f.db.Open(t)
		}
		all = append(all, f.scheduler(t, Watch(store, Watcher{After: func(_ string, err error) error {
			if slots.KindOf(err) == slots.Held {
				held.Add(1)
			}
			return err
		}}), slots.Settings{}))
	}
	return all, held
}

// checkDuplicates: many at once with one event get one slot.
func checkDuplicates(t *testing.T, f *fixture) {
	for i, settings := range []slots.Settings{{}} {
		g := f.named()
		nodes := g.nodes(t, 2, settings)
		g.config(t, nodes[0], 50, 4000)
		var mu sync.Mutex
		var first *slots.Result
		news := 0
		together(32, func(k int) {
			res, err := persist(limited(t), nodes[k%2], g.request(i, day.Add(time.Duration(k)*time.Millisecond)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("assign: %v", err)
				return
			}
			if first == nil {
				first = &res
			}
			if !same(first.Slot, res.Slot) {
				t.Errorf("answers differ: %+v, %+v", first.Slot, res.Slot)
			}
			if !res.Replayed {
				news++
			}
		})
		if news != 1 {
			t.Errorf("%d of the answers were new", news)
		}
		g.audit(t, g.series(4000), 50)
		if n := len(g.slotsOf(t, g.series(4000))); n != 1 {
			t.Errorf("%d windows have slots", n)
		}
	}
}

func checkBatch(t *testing.T, f *fixture) {
	ctx, s := limited(t), f.nodes(t, 1, slots.Settings{})[0]
	f.config(t, s, 30, 4000)
	var rs []slots.Request
	for i := range 200 {
		rs = append(rs, f.request(i%120, day.Add(time.Duration(i%3)*time.Second)))
	}
	rs[7].EventID, rs[8].ConfigName, rs[9].At = "", f.prefix+"nobody", time.Time{}
	out := s.AssignBatch(ctx, rs)
	if len(out) != len(rs) {
		t.Fatalf("%d results of %d", len(out), len(rs))
	}
	got := map[string]slots.Slot{}
	for i, b := range out {
		switch {
		case i == 7 || i == 9:
			if !errors.As(b.Err, new(*slots.FieldError)) {
				t.Errorf("result %d: %v, want a field's error", i, b.Err)
			}
			continue
		case i == 8:
			if !errors.Is(b.Err, slots.ErrConfigNotFound) {
				t.Errorf("result %d: %v, want that there is no config", i, b.Err)
			}
			continue
		case b.Err != nil || b.EventID != rs[i].EventID:
			t.Errorf("result %d: %+v", i, b)
			continue
		}
		if before, ok := got[b.EventID]; ok && !same(before, b.Slot) {
			t.Errorf("event %q has two slots: %+v, %+v", b.EventID, before, b.Slot)
		}
		got[b.EventID] = b.Slot
	}
	f.audit(t, f.series(4000), 30)
	for _, b := range s.AssignBatch(ctx, rs[10:20]) {
		if b.Err != nil || !b.Replayed || !same(b.Slot, got[b.EventID]) {
			t.Errorf("a repeat: %+v, before %+v", b, got[b.EventID])
		}
	}
	for i, b := range s.AssignBatch(ctx, make([]slots.Request, slots.MaxBatch+1)) {
		if b.Err == nil {
			t.Fatalf("result %d of too many: no error", i)
		}
	}
}

// checkCross: batches with the same events in opposite order get in each other's
// way, in deadlocks and duplicates; nobody is the worse for it.
func checkCross(t *testing.T, f *fixture) {
	nodes := f.nodes(t, 3, slots.Settings{})
	f.config(t, nodes[0], 40, 4000)
	const events = 150
	out := make([][]slots.BatchResult, 6)
	together(len(out), func(i int) {
		var rs []slots.Request
		for n := range events {
			rs = append(rs, f.request(n, day.Add(time.Duration(i%2)*4*time.Second)))
		}
		if i%2 == 1 {
			slices.Reverse(rs)
		}
		out[i] = persistBatch(limited(t), nodes[i%3], rs)
		if i%2 == 1 {
			slices.Reverse(out[i])
		}
	})
	for n := range events {
		for i := range out {
			if b := out[i][n]; b.Err != nil || !same(b.Slot, out[0][n].Slot) {
				t.Fatalf("event %d: %+v and %+v", n, b, out[0][n])
			}
		}
	}
	f.audit(t, f.series(4000), 40)
}

// checkBurst: events for one instant fill windows without holes if they wait for
// each other.
func checkBurst(t *testing.T, f *fixture) {
	const room, callers = 100, 64
	events := random.Times(1200, 3000)
	nodes, held := f.watchedNodes(t, 2)
	f.config(t, nodes[0], room, 4000)
	first := plan.WindowStart(day.UnixMicro(), 4000)
	together(callers, func(i int) {
		for n := i; n < events; n += callers {
			if _, err := persist(limited(t), nodes[i%2], f.request(n, time.UnixMilli(first))); err != nil {
				t.Errorf("assign: %v", err)
				return
			}
		}
	})
	s := f.series(4000)
	f.audit(t, s, room)
	windows, total := f.slotsOf(t, s), 0
	last := first
	for at, list := range windows {
		total += len(list)
		last = max(last, at)
	}
	ideal := first + int64(events/room-1)*4000
	if spare := held.Load(); total != events || len(windows) > events/room+1+int(spare) || last > ideal+(1+spare)*4000 {
		t.Errorf("%d events in %d windows, the last %d ms later than need be; a window was held %d times", total,
			len(windows), last-ideal, spare)
	}
}

func checkNodes(t *testing.T, f *fixture) {
	for i, settings := range []slots.Settings{{}} {
		g := f.named()
		nodes := g.nodes(t, 2, settings)
		g.config(t, nodes[0], 9, 4000)
		together(64, func(k int) {
			for n := range 3 {
				at := day.Add(time.Duration((k*7+n*13+i)%16) * 777 * time.Millisecond)
				res, err := persist(limited(t), nodes[k%2], g.request(100*n+k, at))
				if err != nil || res.Scheduled().Before(at) || res.Replayed || res.Delay() < 0 {
					t.Errorf("assign: %+v, %v", res, err)
					return
				}
			}
		})
		g.audit(t, g.series(4000), 9)
		sum := 0
		for _, list := range g.slotsOf(t, g.series(4000)) {
			sum += len(list)
		}
		if sum != 64*3 {
			t.Errorf("%d slots, want %d", sum, 64*3)
		}
	}
}

// assignN assigns events and returns how many each window got.
func (f *fixture) assignN(t *testing.T, s *slots.Scheduler, from, to int, at time.Time) map[int64]int {
	t.Helper()
	windows := map[int64]int{}
	for n := from; n < to; n++ {
		res, err := s.Assign(limited(t), f.request(n, at))
		must(t, err, "assign")
		windows[res.WindowMs]++
	}
	return windows
}

// checkTimes: instants of any precision and zone, never answered with an earlier
// one.
func checkTimes(t *testing.T, f *fixture) {
	s := f.nodes(t, 1, slots.Settings{})[0]
	f.config(t, s, 2, 4000)
	ny, err := time.LoadLocation("America/New_York")
	must(t, err, "zone")
	repeated := time.Date(2026, 11, 1, 1, 30, 0, 0, ny) // happens twice
	for n, at := range []time.Time{
		day.Add(3999*time.Millisecond + 999_999), day.Add(1), day.Add(999), day.Add(1000), day.Add(time.Millisecond - 1),
		repeated, repeated.Add(time.Hour), time.Unix(0, 0), time.Unix(0, -1), time.Unix(0, 1),
		time.Date(1969, 12, 31, 23, 59, 58, 123_456_789, time.UTC), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2400, 2, 29, 12, 0, 0, 0, time.UTC), time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC),
		time.Date(8999, 12, 1, 0, 0, 0, 0, time.UTC),
	} {
		res, err := s.Assign(limited(t), f.request(n, at))
		if errors.As(err, new(*slots.FieldError)) {
			continue // such times may be refused
		}
		must(t, err, at.String())
		if got := res.Scheduled(); got.Before(at) || got.Sub(at) > 12*time.Second || res.Delay() < 0 {
			t.Errorf("%v was scheduled at %v", at.UTC(), got)
		}
		stored, err := s.Slot(limited(t), f.event(n))
		if err != nil || !same(stored, res.Slot) {
			t.Errorf("given %+v, stored %+v, %v", res.Slot, stored, err)
		}
	}
	f.audit(t, f.series(4000), 2)
}

// checkBefore1970: what is remembered of windows with negative starts is right,
// too.
func checkBefore1970(t *testing.T, f *fixture) {
	s := f.nodes(t, 1, slots.Settings{})[0]
	f.config(t, s, 1, 4000)
	first := time.Date(1969, 12, 31, 23, 59, 20, 0, time.UTC)
	got := f.assignN(t, s, 0, 14, first) // ten of them before 1970
	for i := range int64(14) {
		if at := first.UnixMilli() + i*4000; got[at] != 1 {
			t.Errorf("window %d got %d events", at, got[at])
		}
	}
	f.audit(t, f.series(4000), 1)
}

// checkSizes: sizes that divide no day, the smallest and the largest; room for one.
func checkSizes(t *testing.T, f *fixture) {
	for _, size := range []int64{100, 7000, 1500, 90_000, 86_400_000} {
		g := f.named()
		s := g.nodes(t, 1, slots.Settings{})[0]
		g.config(t, s, 1, size)
		first := plan.WindowStart(day.UnixMicro(), size)
		got := g.assignN(t, s, 0, 5, time.UnixMilli(first))
		for i := range int64(5) {
			if got[first+i*size] != 1 {
				t.Errorf("size %d: %v", size, got)
			}
		}
		late := time.UnixMilli(first + size/2) // no place is left of one
		if res, err := s.Assign(limited(t), g.request(9, late.Add(1000*time.Duration(size)*time.Millisecond))); err != nil ||
			res.WindowMs != first+1001*size {
			t.Errorf("size %d: in the middle of a window: %+v, %v", size, res, err)
		}
		g.audit(t, g.series(size), 1)
	}
	for _, size := range []int64{0, -7000, 99, 86_400_001} {
		_, err := f.nodes(t, 1, slots.Settings{})[0].PutConfig(limited(t),
			slots.NewConfig{Name: f.prefix, Max: 1, SizeMs: size})
		if !errors.As(err, new(*slots.FieldError)) {
			t.Errorf("size %d: %v, want a field's error", size, err)
		}
	}
}

// checkHeldScheduler: a window that is held for too long is passed over.
func checkHeldScheduler(t *testing.T, f *fixture) {
	if f.Serial {
		t.Skip("transactions wait for each other")
	}
	for i := range 2 {
		g := f.named()
		s := g.nodes(t, 1, slots.Settings{})[0]
		g.config(t, s, 3, 4000)
		first := plan.WindowStart(day.UnixMicro(), 4000)
		g.assignN(t, s, 0, 1, time.UnixMilli(first))
		release := g.hold(t, g.series(4000), first)
		if got := g.assignN(t, s, 1, 3, time.UnixMilli(first)); got[first+4000] != 2 {
			t.Errorf("%d: while the first window is held: %v", i, got)
		}
		release()
		if got := g.assignN(t, s, 3, 5, time.UnixMilli(first)); got[first] != 2 {
			t.Errorf("%d: when it is not any more: %v", i, got)
		}
	}
}

// checkHeldTogether: callers that wait for the same held window wait together, not one after the other.
func checkHeldTogether(t *testing.T, f *fixture) {
	if f.Serial {
		t.Skip("transactions wait for each other")
	}
	s := f.nodes(t, 1, slots.Settings{})[0]
	f.config(t, s, 100, 4000)
	first := plan.WindowStart(day.UnixMicro(), 4000)
	f.assignN(t, s, 0, 1, time.UnixMilli(first))
	defer f.hold(t, f.series(4000), first)()
	began := time.Now()
	var callers sync.WaitGroup
	for i := range 4 { // each comes while those before it wait
		callers.Go(func() {
			time.Sleep(time.Duration(i) * 200 * time.Millisecond)
			if got := f.assignN(t, s, 1+i, 2+i, time.UnixMilli(first)); got[first+4000] != 1 {
				t.Errorf("%d: while the first window is held: %v", i, got)
			}
		})
	}
	callers.Wait()
	if took := time.Since(began); took > 1700*time.Millisecond {
		t.Errorf("together they waited for %v, not for about a second", took)
	}
}

// checkCut: connections break while slots are assigned.
func checkCut(t *testing.T, f *fixture) {
	if f.db.CutAll == nil {
		t.Skip("connections to this database cannot be cut")
	}
	nodes := f.nodes(t, 2, slots.Settings{})
	f.config(t, nodes[0], 20, 4000)
	ctx, stop := context.WithCancel(limited(t))
	var cutter sync.WaitGroup
	cutter.Go(func() {
		// Less and less often, so that on a machine that needs long for an answer some get theirs.
		for pause := 200 * time.Millisecond; ctx.Err() == nil; pause += 20 * time.Millisecond {
			rest(ctx, pause)
			f.db.CutAll()
		}
	})
	var mu sync.Mutex
	grants := map[string]slots.Slot{}
	together(16, func(i int) {
		for n := range 5 {
			r := f.request((16*n+i)/2, day.Add(time.Duration(i)*time.Second)) // each event twice
			res, err := persist(limited(t), nodes[i%2], r)
			mu.Lock()
			if before, ok := grants[r.EventID]; err != nil || ok && !same(before, res.Slot) {
				t.Errorf("assign: %+v, before %+v; %v", res, before, err)
			}
			grants[r.EventID] = res.Slot
			mu.Unlock()
		}
	})
	stop()
	cutter.Wait()
	f.audit(t, f.series(4000), 20)
}
