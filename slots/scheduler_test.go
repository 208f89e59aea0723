package slots_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/internal/slotstest"
	"github.com/headgate-rls/headgate/slots/plan"
)

// noon is on the grid of windows of 4 s and of chunks of 100 of them.
var noon = time.UnixMilli(plan.ChunkStart(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).UnixMilli(), 4000, 100)).UTC()

func newScheduler(t *testing.T, store slots.Store, settings slots.Settings) *slots.Scheduler {
	t.Helper()
	s, err := slots.NewScheduler(store, settings)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *slots.Scheduler, c slots.NewConfig) slots.Config {
	t.Helper()
	if c.Name == "" {
		c.Name = "default"
	}
	if c.SizeMs == 0 {
		c.SizeMs = 4000
	}
	config, err := s.PutConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func assign(t *testing.T, s *slots.Scheduler, event string, at time.Time) slots.Result {
	t.Helper()
	r, err := s.Assign(t.Context(), slots.Request{EventID: event, At: at})
	if err != nil {
		t.Fatalf("%s: %v", event, err)
	}
	return r
}

// window returns which window a slot is in, counted from noon.
func window(r slots.Result) int64 { return (r.WindowMs - noon.UnixMilli()) / r.SizeMs }

func TestAssignFillsWindowsInOrder(t *testing.T) {
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{})
	put(t, s, slots.NewConfig{Max: 2})
	for i := range 7 {
		r := assign(t, s, fmt.Sprint("e", i), noon)
		if got, want := window(r), int64(i/2); got != want || r.Replayed {
			t.Errorf("event %d is in window %d, want %d; replayed %v", i, got, want, r.Replayed)
		}
		if r.Scheduled().Before(noon) || r.Delay() < 0 || r.Delay() != r.Scheduled().Sub(noon) {
			t.Errorf("event %d: %v, delay %v", i, r.Scheduled(), r.Delay())
		}
	}
	// The middle of window 2 is full for half of 2 places by now.
	if r := assign(t, s, "late", noon.Add(10*time.Second)); window(r) != 3 {
		t.Errorf("asked for the middle of window 2, which has 2 of 2: window %d, want 3", window(r))
	}
	again := assign(t, s, "e5", noon.Add(time.Hour))
	if first := assign(t, s, "e5", noon); again != first || !again.Replayed || window(again) != 2 {
		t.Errorf("repeats differ: %+v, %+v", again, first)
	}
}

// Requested times below a millisecond are never before their slot.
func TestSubMillisecondTimes(t *testing.T) {
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{Bits: func() uint32 { return 0 }})
	put(t, s, slots.NewConfig{Max: 1_000_000})
	for i, offset := range []time.Duration{0, 1, time.Microsecond, 999_999, 3999*time.Millisecond + 1,
		3999500 * time.Microsecond, 4*time.Second - 1} {
		at := noon.Add(offset)
		r := assign(t, s, fmt.Sprint("e", i), at)
		if r.Scheduled().Before(at) {
			t.Errorf("asked for %v, got %v", at, r.Scheduled())
		}
	}
}

func TestErrorsNameFieldOrKind(t *testing.T) {
	now := noon
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{
		MaxPast: time.Hour, MaxFuture: 24 * time.Hour, Now: func() time.Time { return now },
	})
	put(t, s, slots.NewConfig{Name: "paused", Max: 0})
	put(t, s, slots.NewConfig{Max: 1})
	for _, c := range []struct {
		name  string
		r     slots.Request
		field string
		err   error
	}{
		{"no event", slots.Request{At: now}, "eventId", nil},
		{"a blank event", slots.Request{EventID: "  ", At: now}, "eventId", nil},
		{"a long event", slots.Request{EventID: strings.Repeat("x", 51), At: now}, "eventId", nil},
		{"many bytes", slots.Request{EventID: strings.Repeat("ü", 26), At: now}, "eventId", nil},
		{"not UTF-8", slots.Request{EventID: "a\xff", At: now}, "eventId", nil},
		{"a line end", slots.Request{EventID: "a\nb", At: now}, "eventId", nil},
		{"a long config", slots.Request{EventID: "a", ConfigName: strings.Repeat("x", 129), At: now}, "configName", nil},
		{"no time", slots.Request{EventID: "a"}, "requestedTime", nil},
		{"long ago", slots.Request{EventID: "a", At: now.Add(-2 * time.Hour)}, "requestedTime", nil},
		{"far away", slots.Request{EventID: "a", At: now.Add(25 * time.Hour)}, "requestedTime", nil},
		{"the year 9999", slots.Request{EventID: "a", At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, "requestedTime", nil},
		{"an unknown config", slots.Request{EventID: "a", ConfigName: "x", At: now}, "", slots.ErrConfigNotFound},
		{"a paused config", slots.Request{EventID: "a", ConfigName: "paused", At: now}, "", slots.ErrPaused},
	} {
		_, err := s.Assign(t.Context(), c.r)
		var field *slots.FieldError
		switch {
		case c.field != "" && (!errors.As(err, &field) || field.Field != c.field):
			t.Errorf("%s: %v, want an error of the field %s", c.name, err, c.field)
		case c.err != nil && !errors.Is(err, c.err):
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
		var retry *slots.RetryError
		if errors.As(err, &retry) != (c.err == slots.ErrPaused) {
			t.Errorf("%s: %v: worth a retry?", c.name, err)
		}
	}
}

// However many windows are full: the event gets the first one that is not, and no 503.
func TestThereIsNoReach(t *testing.T) {
	model := slotstest.NewModel()
	s := newScheduler(t, model, slots.Settings{})
	put(t, s, slots.NewConfig{Max: 1})
	for w := range int64(3001) {
		model.SetCount(slots.WindowKey{Series: slots.Series{Scope: "default", SizeMs: 4000},
			StartMs: noon.UnixMilli() + w*4000}, 1)
	}
	if r := assign(t, s, "e", noon); window(r) != 3001 {
		t.Errorf("behind 3001 full windows the event is in window %d", window(r))
	}
}

// A calendar's closed time has no slots.
func TestCalendarLeavesClosedTimeFree(t *testing.T) {
	calendar, err := plan.ParseCalendar([]byte(`{"zone":"UTC","open":["mon-fri 09:00-17:00"]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{})
	put(t, s, slots.NewConfig{Max: 1, SizeMs: 60_000, Options: slots.Options{Calendar: calendar}})
	friday := time.Date(2026, 6, 5, 16, 58, 0, 0, time.UTC)
	want := []string{"16:58 Fri", "16:59 Fri", "09:00 Mon", "09:01 Mon"}
	for i, w := range want {
		r := assign(t, s, fmt.Sprint("e", i), friday)
		if got := time.UnixMilli(r.WindowMs).UTC().Format("15:04 Mon"); got != w {
			t.Errorf("event %d is at %s, want %s", i, got, w)
		}
	}
	if r := assign(t, s, "sunday", time.Date(2026, 6, 7, 3, 0, 0, 0, time.UTC)); time.UnixMilli(r.WindowMs).UTC().Format(
		"15:04 Mon") != "09:02 Mon" {
		t.Errorf("asked for a Sunday: %v", r.Scheduled())
	}
}

// The year 1 is a time, though not one that slots can have.
func TestYearOneIsNamedAsOutOfRange(t *testing.T) {
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{})
	put(t, s, slots.NewConfig{Max: 1})
	_, err := s.Assign(t.Context(), slots.Request{EventID: "e", At: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err == nil || err.Error() != "requestedTime is outside the years 1900 to 9000" {
		t.Errorf("%v, want that the time is out of range", err)
	}
}

// NextFree names the window that an event would get.
func TestNextFreeIsTheWindowOfTheNextEvent(t *testing.T) {
	calendar, err := plan.ParseCalendar([]byte(`{"zone":"UTC","open":["mon-fri 09:00-17:00"]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{})
	for name, c := range map[string]slots.NewConfig{
		"plain":    {Max: 2, SizeMs: 4000},
		"calendar": {Max: 2, SizeMs: 60_000, Options: slots.Options{Calendar: calendar}},
	} {
		c.Name = name
		config := put(t, s, c)
		friday := time.Date(2026, 6, 5, 16, 58, 0, 0, time.UTC)
		for i := range 9 {
			next, ok, err := s.NextFree(t.Context(), config, friday.UnixMilli())
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			r, err := s.Assign(t.Context(), slots.Request{EventID: fmt.Sprint(name, i), ConfigName: name, At: friday})
			if err != nil || r.WindowMs != next {
				t.Errorf("%s: event %d is in window %d, NextFree said %d; %v", name, i, r.WindowMs, next, err)
			}
		}
	}
	paused := put(t, s, slots.NewConfig{Name: "plain", Max: 0, SizeMs: 4000})
	if _, ok, err := s.NextFree(t.Context(), paused, noon.UnixMilli()); ok || err != nil {
		t.Errorf("a paused config has a free window: %v, %v", ok, err)
	}
}

// Many at once, of one process: they share transactions, windows fill without
// holes, twins get one slot.
func TestManyAtOnce(t *testing.T) {
	for _, serial := range []bool{false, true} {
		t.Run(fmt.Sprint("serial=", serial), func(t *testing.T) {
			model := slotstest.NewModel()
			model.Serial = serial
			s := newScheduler(t, model, slots.Settings{Timeout: time.Minute})
			put(t, s, slots.NewConfig{Max: 10})
			const events, askers = 200, 2
			var mu sync.Mutex
			got := map[string]slots.Slot{}
			perWindow := map[int64]int{}
			var wait sync.WaitGroup
			for i := range events * askers {
				wait.Go(func() {
					r, err := s.Assign(context.Background(), slots.Request{EventID: fmt.Sprint("e", i%events), At: noon})
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
					if before, ok := got[r.EventID]; !ok {
						got[r.EventID] = r.Slot
						perWindow[window(r)]++
					} else if before.ID != r.ID || before.ScheduledMs != r.ScheduledMs {
						t.Errorf("%s has two slots: %+v and %+v", r.EventID, before, r.Slot)
					}
				})
			}
			wait.Wait()
			for w, n := range perWindow {
				if n > 10 {
					t.Errorf("window %d has %d events, at most 10", w, n)
				}
			}
			if len(perWindow) != events/10 {
				t.Errorf("%d windows are used, want %d", len(perWindow), events/10)
			}
			if misuse := model.Misuse(); len(misuse) > 0 {
				t.Error(misuse)
			}
		})
	}
}

func TestBatchAnswersEachRequestAlone(t *testing.T) {
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{})
	put(t, s, slots.NewConfig{Max: 2})
	rs := []slots.Request{{EventID: "a", At: noon}, {EventID: "", At: noon}, {EventID: "a", At: noon},
		{EventID: "b", ConfigName: "none", At: noon}, {EventID: "c", At: noon}}
	out := s.AssignBatch(t.Context(), rs)
	if out[0].Err != nil || out[2].Err != nil || out[0].ID != out[2].ID || out[4].Err != nil || out[4].ID == out[0].ID {
		t.Errorf("%+v", out)
	}
	if out[0].Replayed || !out[2].Replayed {
		t.Errorf("of two requests for one event the second is the repeat: %v, %v", out[0].Replayed, out[2].Replayed)
	}
	var field *slots.FieldError
	if !errors.As(out[1].Err, &field) || !errors.Is(out[3].Err, slots.ErrConfigNotFound) {
		t.Errorf("%v, %v", out[1].Err, out[3].Err)
	}
	for _, b := range s.AssignBatch(t.Context(), make([]slots.Request, slots.MaxBatch+1)) {
		if !errors.As(b.Err, &field) || field.Field != "events" {
			t.Fatal(b.Err)
		}
	}
}

// A change on one node is in force on another within a quarter of a second, be
// it asked all the time or not at all meanwhile.
func TestChangesReachOtherNodes(t *testing.T) {
	model := slotstest.NewModel()
	admin := newScheduler(t, model, slots.Settings{})
	node := newScheduler(t, model, slots.Settings{})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { node.Run(ctx) })
	defer running.Wait()
	defer stop()
	put(t, admin, slots.NewConfig{Max: 1})
	if _, err := node.Config(t.Context(), "other"); !errors.Is(err, slots.ErrConfigNotFound) {
		t.Fatal(err)
	}
	for n := int64(2); n < 5; n++ {
		if c, err := node.Config(t.Context(), ""); err != nil || c.Max != n-1 {
			t.Fatalf("%+v, %v, want %d", c, err, n-1)
		}
		changed := put(t, admin, slots.NewConfig{Max: n})
		put(t, admin, slots.NewConfig{Name: "other", Max: n})
		time.Sleep(250 * time.Millisecond)
		if c, err := node.Config(t.Context(), ""); err != nil || c.ID != changed.ID {
			t.Fatalf("a quarter of a second after the change: %+v, %v", c, err)
		}
		if c, err := node.Config(t.Context(), "other"); err != nil || c.Max != n {
			t.Fatalf("a quarter of a second after the change: %+v, %v", c, err)
		}
	}
}

func TestOverloadRefusesWhatCannotWait(t *testing.T) {
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{MaxWaiting: 1})
	put(t, s, slots.NewConfig{Max: 10})
	rs := make([]slots.Request, 3)
	for i := range rs {
		rs[i] = slots.Request{EventID: fmt.Sprint("e", i), At: noon}
	}
	out := s.AssignBatch(t.Context(), rs)
	var retry *slots.RetryError
	if out[0].Err != nil || !errors.Is(out[1].Err, slots.ErrOverloaded) || !errors.As(out[2].Err, &retry) {
		t.Errorf("%+v", out)
	}
	assign(t, s, "later", noon)
}

// Operators who look for one event at level debug find what became of it.
func TestOutcomesAreLogged(t *testing.T) {
	var log bytes.Buffer
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	put(t, s, slots.NewConfig{Max: 1, SizeMs: 60_000})
	assign(t, s, "pay-1", noon)
	assign(t, s, "pay-1", noon)
	end := time.Date(8999, 12, 31, 23, 59, 59, 999_999_000, time.UTC) // no window is left
	if _, err := s.Assign(t.Context(), slots.Request{EventID: "pay-3", At: end}); !errors.Is(err, slots.ErrExhausted) {
		t.Errorf("no window is left: %v", err)
	}
	for i := range 100 { // a client that asks for what cannot be
		_, _ = s.Assign(t.Context(), slots.Request{EventID: fmt.Sprint("far-", i), At: end})
	}
	if n := strings.Count(log.String(), "level=ERROR"); n > 99 {
		t.Errorf("%d errors are logged", n)
	}
	for _, want := range []string{
		`level=DEBUG msg="slot assigned" event_id=pay-1 window=`,
		`level=DEBUG msg="the event already has a slot" event_id=pay-1`,
		`level=DEBUG msg="config read from the database" config_name=default`,
		`level=ERROR msg="no slot assigned: no window that was searched has room" event_id=pay-3`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in the log:\n%s", want, log.String())
		}
	}
}

// How late new slots are is counted by config, for a bounded number of names.
func TestDelaysAreCountedByConfig(t *testing.T) {
	m := slots.NewMetrics()
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{Metrics: m})
	for i := range 300 {
		put(t, s, slots.NewConfig{Name: fmt.Sprint("c", i), Max: 1, SizeMs: 60_000})
	}
	for i := range 300 {
		for k := range 3 {
			if _, err := s.Assign(t.Context(), slots.Request{EventID: fmt.Sprint(i, "-", k%2), ConfigName: fmt.Sprint("c", i),
				At: noon.Truncate(time.Minute)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := map[string]*metrics.Counts{}
	for _, row := range m.Rows() {
		if row.Name == "headgate_slots_delay_seconds" {
			row.Each(func(labels []string, _ float64, c *metrics.Counts) { seen[labels[0]] = c })
		}
	}
	if len(seen) != 201 || seen["(other)"].Count != 200 {
		t.Fatalf("%d configs have figures, the others share %v", len(seen), seen["(other)"])
	}
	if c := seen["c7"]; c == nil || c.Count != 2 || c.Buckets[60] < 1 || c.Buckets[300] != 2 || c.Sum < 60 || c.Sum > 240 {
		t.Errorf("one event in this minute and one in the next are %+v", c)
	}
}

// Events for one instant, then events all over the next minute: windows fill one after
// the other, without holes.
func TestNoHolesWithinAProcess(t *testing.T) {
	const events, room = 3000, 100
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{Timeout: time.Minute})
	put(t, s, slots.NewConfig{Max: room})
	used := map[int64]int{}
	var mu sync.Mutex
	for _, spread := range []bool{false, true} {
		var wait sync.WaitGroup
		for c := range 64 {
			wait.Go(func() {
				for i := c; i < events; i += 64 {
					at := noon
					if spread {
						at = noon.Add(time.Duration(i) * time.Minute / events)
					}
					r, err := s.Assign(context.Background(), slots.Request{EventID: fmt.Sprint(spread, i), At: at})
					mu.Lock()
					used[window(r)]++
					mu.Unlock()
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
	}
	if len(used) != 2*events/room {
		t.Errorf("%d windows are used, want %d", len(used), 2*events/room)
	}
}

// Of callers who share a search the one before asks for a later time.
func TestEventsOfABatchDoNotWaitForLaterTimes(t *testing.T) {
	for range 20 { // whether they share a search is up to the scheduler of goroutines
		s := newScheduler(t, slotstest.NewModel(), slots.Settings{})
		put(t, s, slots.NewConfig{Max: 1})
		// With one place in a window, the middle of one has none.
		got := s.AssignBatch(t.Context(), []slots.Request{
			{EventID: "later", At: noon.Add(42 * time.Second)}, {EventID: "earlier", At: noon.Add(2 * time.Second)},
		})
		for i, want := range []int64{11, 1} {
			if got[i].Err != nil || window(got[i].Result) != want {
				t.Fatalf("event %d is in window %d, want %d; %v", i, window(got[i].Result), want, got[i].Err)
			}
		}
	}
}

// slowNotes is a store whose notes of full windows wait, as behind a change of a config.
type slowNotes struct {
	slots.Store
	noted chan struct{}
}

func (s slowNotes) NoteFull(ctx context.Context, _ slots.Series, _ int64, _ slots.Span, _ int64) error {
	select {
	case s.noted <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestNotesOfFullWindowsDoNotHoldCallersUp(t *testing.T) {
	store := slowNotes{slotstest.NewModel(), make(chan struct{}, 1)}
	s := newScheduler(t, store, slots.Settings{Timeout: time.Hour})
	put(t, s, slots.NewConfig{Max: 1})
	rs := make([]slots.Request, 100)
	for i := range rs {
		rs[i] = slots.Request{EventID: fmt.Sprint("e", i), At: noon}
	}
	s.AssignBatch(t.Context(), rs)
	<-store.noted
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.Assign(ctx, slots.Request{EventID: "next", At: noon}); err != nil {
		t.Errorf("behind a note that waits: %v", err)
	}
}

// coldStore counts how often it is asked how configs count, and is slow to answer.
type coldStore struct {
	slots.Store
	asked atomic.Int64
}

func (s *coldStore) Scope(ctx context.Context, want string) (string, error) {
	s.asked.Add(1)
	time.Sleep(20 * time.Millisecond)
	return s.Store.Scope(ctx, want)
}

func TestOfManyFirstCallersOneAsksForTheScope(t *testing.T) {
	store := &coldStore{Store: slotstest.NewModel()}
	s := newScheduler(t, store, slots.Settings{})
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if err := s.Scope(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := store.asked.Load(); n != 1 {
		t.Errorf("the database was asked %d times", n)
	}
}

// halfPurge drops windows once, and fails then.
type halfPurge struct {
	slots.Store
	purged, flushed atomic.Int64
}

func (s *halfPurge) PurgeWindows(context.Context, int64, int64, int) (int64, error) {
	if s.purged.Add(1) == 1 {
		return 1000, nil
	}
	return 0, errors.New("the database is away")
}

func (s *halfPurge) Flush(ctx context.Context) (int64, error) {
	s.flushed.Add(1)
	return s.Store.Flush(ctx)
}

func TestNodesAreToldOfWindowsThatAreGoneAlsoIfAPurgeFailsLater(t *testing.T) {
	store := &halfPurge{Store: slotstest.NewModel()}
	s := newScheduler(t, store, slots.Settings{})
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	for store.flushed.Load() == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	stop()
	<-done
	if store.flushed.Load() == 0 {
		t.Errorf("after %d purges nobody was told", store.purged.Load())
	}
}

// If an event is in a batch more than once, the first request counts, whichever search ends first. If
// it fails, the next one counts.
func TestFirstRequestOfAnEventCounts(t *testing.T) {
	s := newScheduler(t, slotstest.NewModel(), slots.Settings{})
	put(t, s, slots.NewConfig{Max: 1000})
	var batch []slots.Request
	for n := range 250 {
		for k := range 4 {
			at := noon.Add(time.Duration((n+k*3)%4) * time.Minute)
			batch = append(batch, slots.Request{EventID: fmt.Sprint("e", n), At: at})
		}
	}
	for i, b := range s.AssignBatch(t.Context(), batch) {
		first := batch[i-i%4]
		if b.Err != nil || b.EventID != first.EventID || b.RequestedUs != first.At.UnixMicro() || b.Replayed != (i%4 > 0) {
			t.Fatalf("request %d: %+v, want the slot of %v, replayed %v", i, b, first, i%4 > 0)
		}
	}
	got := s.AssignBatch(t.Context(), []slots.Request{
		{EventID: "late", ConfigName: "absent", At: noon}, {EventID: "late", At: noon.Add(time.Minute)},
		{EventID: "late", ConfigName: "absent", At: noon}, {EventID: "late", At: noon}, {EventID: "", At: noon},
		{EventID: "", At: noon},
	})
	for i, want := range []bool{false, true, false, true, false, false} {
		if (got[i].Err == nil) != want || want && (got[i].RequestedUs != noon.Add(time.Minute).UnixMicro() ||
			got[i].Replayed != (i > 1)) {
			t.Errorf("request %d: %+v", i, got[i])
		}
	}
}
