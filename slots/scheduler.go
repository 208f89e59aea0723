package slots

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// loggedPerSecond bounds the events without a window that the log has: clients choose their times.
const loggedPerSecond = 10

// A Scheduler assigns slots. It may be used from any goroutine. Its background
// work is done by Run.
type Scheduler struct {
	settings Settings
	store    Store
	engine   Engine
	configs  *configCache
	windows  *windowCache

	shares    *shares
	exhausted background.LogLimit // of events without a window in the log
	holding   chan struct{}       // has room for the one event whose transaction holds a version of a config

	shared atomic.Pointer[bool] // all configs count together; nil: not known yet

	mu     sync.Mutex
	queues map[queueKey]*queue
}

// NewScheduler returns a Scheduler over the store, which stays the caller's to close.
func NewScheduler(store Store, settings Settings) (*Scheduler, error) {
	settings.setDefaults()
	if err := settings.check(store); err != nil {
		return nil, err
	}
	s := &Scheduler{
		settings: settings, store: store, engine: TxEngine(store),
		windows: newWindowCache(),
		queues:  make(map[queueKey]*queue),
		shares:  newShares(settings.MaxWaiting, store.Pool().Max),
		holding: make(chan struct{}, 1), exhausted: background.LogLimit{PerSecond: loggedPerSecond},
	}
	if settings.Procedure {
		s.engine = ProcedureEngine(store.Procedure(), s.engine)
	}
	s.configs = newConfigCache(store, settings.Now, settings.Log, s.windows.clear)
	return s, nil
}

// Ping reports whether slots could be assigned now.
func (s *Scheduler) Ping(ctx context.Context) error { return s.store.Ping(ctx) }

// Scope decides how configs count, if the database has not decided it yet. It is an
// error if the settings want it otherwise.
func (s *Scheduler) Scope(ctx context.Context) error {
	_, err := s.isShared(ctx)
	return err
}

// isShared reports whether configs count together whose options name no scope. It never
// changes.
func (s *Scheduler) isShared(ctx context.Context) (bool, error) {
	if known := s.shared.Load(); known != nil {
		return *known, nil
	}
	want := s.settings.Scope
	read, err := s.configs.once(ctx, "scope", func(ctx context.Context) (any, error) { return s.store.Scope(ctx, want) })
	if err != nil {
		return false, err
	}
	scope := read.(string)
	if want != "" && want != scope {
		return false, &StoreError{Failed, "read the scope", fmt.Errorf("configs of this database count by scope %q, "+
			"and the settings want %q: windows would be booked twice; leave the setting out", scope, want)}
	}
	shared := scope == ScopeShared
	s.shared.Store(&shared)
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
