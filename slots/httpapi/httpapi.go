package httpapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/slots"
)

// Scheduler is what the handlers need of a slots.Scheduler.
type Scheduler interface {
	Assign(ctx context.Context, r slots.Request) (slots.Result, error)
	AssignBatch(ctx context.Context, rs []slots.Request) []slots.BatchResult
	Slot(ctx context.Context, eventID string) (slots.Slot, error)
	SlotsSince(ctx context.Context, after slots.Position, limit int) ([]slots.Slot, error)
	Config(ctx context.Context, name string) (slots.Config, error)
	Configs(ctx context.Context) ([]slots.Config, error)
	PutConfig(ctx context.Context, c slots.NewConfig) (slots.Config, error)
	Flush(ctx context.Context) error
	Windows(ctx context.Context, c slots.Config, fromMs int64, n int) ([]slots.Window, error)
	NextFree(ctx context.Context, c slots.Config, fromMs int64) (windowMs int64, ok bool, err error)
}

var _ Scheduler = (*slots.Scheduler)(nil)

// Config is what New needs.
type Config struct {
	Scheduler Scheduler
	Log       *slog.Logger     // of failures; nil: no log
	Timeout   time.Duration    // of a request, the arrival of its body included; 0: 5 s
	Now       func() time.Time // for the page's windows, never for slots; nil: time.Now
}

// Handlers are the HTTP handlers of slots.
type Handlers struct {
	Config
	often background.LogLimit // of failures in the log: a batch may have a thousand
}

// What rows of lists keep in memory until they are written, in bytes.
const (
	slotBytes   = 512
	windowBytes = 256
	eventBytes  = 1 << 10 // of a batch, with what waits for its slot
	configBytes = 1 << 10
)

// loggedPerSecond bounds the failures that the log has.
const loggedPerSecond = 10

// New returns the handlers.
func New(c Config) (*Handlers, error) {
	if c.Scheduler == nil {
		return nil, errors.New("httpapi: there is no Scheduler")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Timeout = cmp.Or(max(c.Timeout, 0), 5*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Handlers{Config: c, often: background.LogLimit{PerSecond: loggedPerSecond}}, nil
}
