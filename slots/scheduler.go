package slots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/headgate-rls/headgate/slots/plan"
)

// Settings of a Scheduler. The zero value of each is its default.
type Settings struct {
	DefaultConfig string // of requests that name none; "default"

	// Chunk is how many windows the background work provisions at once (100), Chunks how
	// many chunks beyond the one of now (2; -1 for none).
	Chunk, Chunks int

	// Procedure has single events placed inside the database, in one round trip.
	Procedure bool
	// Scope is how configs count whose options name no scope, where the database has not
	// decided that yet: ScopeConfig or ScopeShared. It is an error if the database
	// has decided otherwise. Empty: as the database has it; ScopeConfig in a new one.
	Scope string

	// MaxPast and MaxFuture bound the times that may be asked for; zero: any time
	// from 1900 to 9000.
	MaxPast, MaxFuture time.Duration

	// Timeout bounds a call whose context has no deadline, or a later one; 5 s.
	Timeout time.Duration
	// MaxWaiting bounds the callers that wait at once; 10,000.
	MaxWaiting int

	// Ahead is how far windows are provisioned before anybody asks, for those who read
	// the tables: no answer depends on it. Zero: as far as Chunks says where the schema
	// was made by another program, and not at all elsewhere.
	Ahead time.Duration
	// KeepWindows is how long windows are kept after their end (7 days), KeepSlots
	// how long slots are kept after both their assignment and their time; zero
	// keeps them for ever. When a slot is dropped, its event may get another one.
	KeepWindows, KeepSlots time.Duration

	Log      *slog.Logger
	Observer Observer

	Now   func() time.Time // for bounds, caches and retention, never for slots
	NewID func() string    // of slots and configs; random UUIDs
	Bits  func() uint32    // 31 random bits
}

// Bounds of settings, and of times that may be asked for.
const (
	maxChunk  = 10_000
	maxChunks = 100
)

var minTime, maxTime = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *Settings) setDefaults() {
	setDefault(&s.DefaultConfig, "default")
	setDefault(&s.Chunk, 100)
	setDefault(&s.Chunks, 2)
	s.Chunks = max(s.Chunks, 0)
	setDefault(&s.Timeout, 5*time.Second)
	setDefault(&s.MaxWaiting, 10_000)
	setDefault(&s.KeepWindows, 7*24*time.Hour)
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Observer == nil {
		s.Observer = nobody{}
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.NewID == nil {
		// Version 7 grows with time, which keeps indexes compact.
		s.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	if s.Bits == nil {
		s.Bits = func() uint32 { return rand.Uint32() >> 1 }
	}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (s *Settings) check(store Store) error {
	switch {
	case s.Chunk < 1 || s.Chunk > maxChunk:
		return fmt.Errorf("slots: %d windows in a chunk: want 1 to %d", s.Chunk, maxChunk)
	case s.Chunks > maxChunks:
		return fmt.Errorf("slots: %d chunks to search: want 0 to %d", s.Chunks, maxChunks)
	case s.Procedure && store.Procedure() == nil:
		return errors.New("slots: this database has no procedure for slots; use the tx engine")
	case s.Scope != "" && s.Scope != ScopeConfig && s.Scope != ScopeShared:
		return fmt.Errorf("slots: unknown scope %q: want %s or %s", s.Scope, ScopeConfig, ScopeShared)
	case s.KeepSlots < 0 || s.KeepWindows < 0 || s.Ahead < 0 || s.MaxPast < 0 || s.MaxFuture < 0 || s.Timeout < 0:
		return errors.New("slots: a time in the settings is negative")
	case s.KeepSlots > 0 && s.KeepSlots < s.KeepWindows:
		return fmt.Errorf("slots: slots are kept for %v and their windows for %v: slots must be kept at least as long, since windows count them", s.KeepSlots, s.KeepWindows)
	}
	return nil
}

// A Scheduler assigns slots. It may be used from any goroutine. Its background
// work is done by Run.
type Scheduler struct {
	settings Settings
	store    Store
	engine   Engine
	configs  *configCache
	hints    *hints

	waiting atomic.Int64 // callers

	mu     sync.Mutex
	queues map[queueKey]*queue
	shared *bool // all configs count together; nil: not known yet
}

// NewScheduler returns a Scheduler over the store, which stays the caller's to close.
func NewScheduler(store Store, settings Settings) (*Scheduler, error) {
	settings.setDefaults()
	if err := settings.check(store); err != nil {
		return nil, err
	}
	s := &Scheduler{
		settings: settings, store: store, engine: TxEngine(store),
		hints:  newHints(),
		queues: make(map[queueKey]*queue),
	}
	if settings.Procedure {
		s.engine = ProcedureEngine(store.Procedure(), s.engine)
	}
	s.configs = newConfigCache(store, settings.Now, settings.Log, s.hints.clear)
	return s, nil
}

// Assign gives the event the first window with room, or the slot that it has.
//
// Errors: *FieldError if the request is wrong, *ConfigNotFoundError, *RetryError if
// it is worth trying again, the context's error, and *StoreError. After an error
// the event may have a slot nevertheless; asking again tells.
func (s *Scheduler) Assign(ctx context.Context, r Request) (Result, error) {
	return s.AssignBatch(ctx, []Request{r})[0].unpack()
}

func (b BatchResult) unpack() (Result, error) { return b.Result, b.Err }

// AssignBatch assigns up to MaxBatch events, each as if it were asked for alone,
// and returns their results in the same order. The same event twice gets the
// same slot.
func (s *Scheduler) AssignBatch(ctx context.Context, rs []Request) []BatchResult {
	out := make([]BatchResult, len(rs))
	if len(rs) > MaxBatch {
		for i := range out {
			out[i].Err = badField("events", "has %d entries, at most %d", len(rs), MaxBatch)
		}
		return out
	}
	began := s.settings.Now()
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	todo := make([]int, len(rs))
	for i := range todo {
		todo[i] = i
	}
	for try := 0; len(todo) > 0; try++ {
		todo = s.assign(ctx, rs, out, todo)
		if try > 2 && len(todo) > 0 && s.backOff(ctx, try) != nil {
			break
		}
	}
	for i := range rs {
		s.finish(rs[i], &out[i], began)
	}
	return out
}

// assign assigns those of the events that are to do, and returns those whose config
// has another version by now.
func (s *Scheduler) assign(ctx context.Context, rs []Request, out []BatchResult, todo []int) (again []int) {
	callers := make([]*caller, len(todo))
	for k, i := range todo {
		callers[k], out[i].Err = s.prepare(ctx, rs[i])
	}
	s.submit(callers)
	for k, i := range todo {
		c := callers[k]
		if c == nil {
			continue
		}
		out[i] = c.wait(ctx)
		if s.superseded(ctx, c.config, out[i].Err) {
			again = append(again, i)
		}
	}
	return again
}

// superseded tells whether an event was refused by a version of a config that is not the
// active one any more.
func (s *Scheduler) superseded(ctx context.Context, c Config, err error) bool {
	if KindOf(err) == Superseded {
		s.configs.drop(c)
		return true
	}
	if !errors.Is(err, ErrPaused) && !errors.Is(err, ErrExhausted) || s.configs.check(ctx) != nil {
		return false
	}
	now, err := s.configs.get(ctx, c.Name)
	return err == nil && now.ID != c.ID
}

// prepare checks a request and makes it the caller of a search.
func (s *Scheduler) prepare(ctx context.Context, r Request) (*caller, error) {
	us, err := s.checkRequest(&r)
	if err != nil {
		return nil, err
	}
	config, err := s.configs.get(ctx, r.ConfigName)
	if err != nil {
		return nil, named(err, r.ConfigName)
	}
	series, err := s.series(ctx, config)
	if err != nil {
		return nil, err
	}
	firstMs := plan.WindowStart(us, config.SizeMs)
	elapsed := plan.Elapsed(us, config.SizeMs)
	deadline, _ := ctx.Deadline()
	c := &caller{
		config: config, series: series, firstMs: firstMs, deadline: deadline, done: make(chan struct{}),
		ask: Ask{
			EventID: r.EventID, SlotID: s.settings.NewID(), RequestedUs: us, ElapsedMs: elapsed,
			FirstMax: plan.FirstCapacity(config.Max, elapsed, config.SizeMs), Bits: s.settings.Bits(),
		},
	}
	if from, _, open := config.Options.Calendar.Span(firstMs, config.SizeMs); !open || from != firstMs {
		c.ask.FirstMax = 0 // the calendar closes it
	}
	return c, nil
}

// finish makes a failure one that callers understand, and tells about it.
func (s *Scheduler) finish(r Request, b *BatchResult, began time.Time) {
	b.Err = retryable(b.Err)
	outcome := outcomeOf(b)
	s.settings.Observer.Assigned(outcome, s.settings.Now().Sub(began))
	s.logOutcome(r, b, outcome)
}

// Slot returns the slot of an event, or ErrSlotNotFound.
func (s *Scheduler) Slot(ctx context.Context, eventID string) (Slot, error) {
	if err := checkName("eventId", eventID, MaxEventID); err != nil {
		return Slot{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	found, err := s.store.Find(ctx, []string{eventID})
	switch {
	case err != nil:
		return Slot{}, retryable(err)
	case len(found) == 0:
		return Slot{}, ErrSlotNotFound
	}
	return found[0], nil
}

// SlotsSince returns slots in the order in which they were created, from those
// after the position on, at most limit (1 to MaxBatch). A slot whose transaction is slow
// may appear before ones that were returned; ask from some seconds back to miss
// none.
func (s *Scheduler) SlotsSince(ctx context.Context, after Position, limit int) ([]Slot, error) {
	if limit < 1 || limit > MaxBatch {
		return nil, badField("limit", "is %d, want 1 to %d", limit, MaxBatch)
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	list, err := s.store.SlotsSince(ctx, after, limit)
	return list, retryable(err)
}

// maxWindows bounds what Windows returns.
const maxWindows = 1000

// Windows returns the n windows (1 to 1000) of the config from the one that
// holds the instant fromMs on. Those that nobody has asked for count 0.
func (s *Scheduler) Windows(ctx context.Context, c Config, fromMs int64, n int) ([]Window, error) {
	if n < 1 || n > maxWindows {
		return nil, badField("limit", "is %d, want 1 to %d", n, maxWindows)
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	from := plan.WindowStart(fromMs*1000, c.SizeMs)
	series, err := s.series(ctx, c)
	if err != nil {
		return nil, retryable(err)
	}
	have, err := s.store.Windows(ctx, series, from, from+int64(n)*c.SizeMs, n)
	if err != nil {
		return nil, retryable(err)
	}
	out := make([]Window, n)
	for i := range out {
		out[i].StartMs = from + int64(i)*c.SizeMs
	}
	for _, w := range have {
		out[(w.StartMs-from)/c.SizeMs] = w
	}
	return out, nil
}

// NextFree returns the start of the first window with room for one event more,
// from the window on that holds the instant fromMs; a window that the config's
// calendar closes has none. ok is false if the config is paused, or if there is no
// such window.
func (s *Scheduler) NextFree(ctx context.Context, c Config, fromMs int64) (windowMs int64, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	series, err := s.series(ctx, c)
	if c.Max == 0 || err != nil {
		return 0, false, retryable(err)
	}
	for at := plan.WindowStart(fromMs*1000, c.SizeMs); ; {
		from, to, open := c.Options.Calendar.Span(at, c.SizeMs)
		if !open || from >= lastMs {
			return 0, false, nil
		}
		at, ok, err = s.store.Scout(ctx, series, from, min(to, lastMs), c.Max)
		if ok || err != nil {
			return at, ok, retryable(err)
		}
		at = to
	}
}

// Scope decides how configs count, if the database has not decided it yet. It is an
// error if the settings want it otherwise.
func (s *Scheduler) Scope(ctx context.Context) error {
	_, err := s.isShared(ctx)
	return err
}

// isShared tells whether configs count together whose options name no scope. It never
// changes.
func (s *Scheduler) isShared(ctx context.Context) (bool, error) {
	s.mu.Lock()
	known := s.shared
	s.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	want := s.settings.Scope
	scope, err := s.store.Scope(ctx, want)
	if err != nil {
		return false, err
	}
	if want != "" && want != scope {
		return false, &StoreError{Failed, "read the scope", fmt.Errorf("configs of this database count by scope %q, "+
			"and the settings want %q: windows would be booked twice; leave the setting out", scope, want)}
	}
	shared := scope == ScopeShared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared = &shared
	return shared, nil
}

// series are the windows that a config uses.
func (s *Scheduler) series(ctx context.Context, c Config) (Series, error) {
	shared, err := s.isShared(ctx)
	return SeriesOf(c, shared), err
}

// SeriesOf returns the windows that a config uses; shared: all configs count together
// whose options name no scope.
func SeriesOf(c Config, shared bool) Series {
	scope := c.Options.Scope
	switch {
	case scope != "":
	case shared:
		scope = SharedScope
	default:
		scope = c.Name
	}
	return Series{Scope: scope, SizeMs: c.SizeMs}
}

// Ping tells whether slots could be assigned now.
func (s *Scheduler) Ping(ctx context.Context) error { return s.store.Ping(ctx) }
