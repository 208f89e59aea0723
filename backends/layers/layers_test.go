package layers

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// A switched store is away while it is off.
type switched struct {
	backends.Backend
	off atomic.Bool
}

func (s *switched) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if !s.off.Load() {
		s.Backend.Take(ctx, reqs, out)
		return
	}
	for i := range out {
		out[i] = limit.Verdict{Err: backends.ErrUnavailable}
	}
}

func (s *switched) Ping(ctx context.Context) error {
	if s.off.Load() {
		return backends.ErrUnavailable
	}
	return s.Backend.Ping(ctx)
}

// TestTheSecondOutageIsLoggedAsItLasts: one that begins soon after another is not logged at once, and by Sweep then.
func TestTheSecondOutageIsLoggedAsItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		instant := func() limit.Instant { return limit.InstantOf(time.Now()) }
		store := &switched{Backend: memory.New(memory.Config{})}
		all := Around(backends.Inside{
			Options: backends.Options{Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil))},
			Caps:    backends.Caps{Atomicity: backends.Whole}, Store: store, Next: store,
			Memory: memory.New(memory.Config{}), Instants: instant,
		})
		defer func() { _ = all.Close() }()
		l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1000, Window: time.Hour})
		calls := func(n int) {
			for range n {
				op := limit.Op{Key: limit.Key{Group: "g", Limit: "l"}, Limit: l, Cost: 1}
				all.Take(t.Context(), []limit.Request{{Ops: []limit.Op{op}, At: instant()}}, make([]limit.Verdict, 1))
				time.Sleep(20 * time.Millisecond)
			}
		}
		opened := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			if n := strings.Count(log.String(), "circuit breaker opened"); n != want {
				t.Fatalf("%s: the log says %d times that the breaker opened, want %d:\n%s", when, n, want, &log)
			}
		}
		store.off.Store(true)
		calls(20)
		opened(1, "the first outage")
		store.off.Store(false)
		calls(200)
		store.off.Store(true)
		calls(100)
		opened(1, "the second outage")
		for _, layer := range all.Layers {
			if s, ok := layer.(backends.Sweeper); ok {
				s.Sweep(instant())
			}
		}
		opened(2, "it lasts")
	})
}
