package slots

import (
	"context"
	"sync"

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
