package coalesce

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// A bursting store panics while its switch is on.
type bursting struct {
	*store
	burst atomic.Bool
}

func (s *bursting) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	s.store.Take(ctx, reqs, out)
	if s.burst.Load() {
		panic("burst")
	}
}

// TestPanicFailsItsSlice: those whose slice the store panicked over get an error,
// once, and those who come after them are served.
func TestPanicFailsItsSlice(t *testing.T) {
	var counted atomic.Int64
	sc := newScene(t, Config{})
	s := &bursting{store: sc.s}
	sc.b.next = s
	sc.b.cfg.Panics = &background.Reporter{Count: func(string) { counted.Add(1) }}
	for range 3 {
		sc.call(context.Background(), 2)
	}
	s.burst.Store(true)
	gate := sc.s.gate
	close(gate) // the first one was called before the panics
	sc.s.mu.Lock()
	sc.s.gate = nil
	sc.s.mu.Unlock()
	failed := 0 // of those behind the first one; who gets its result first, is open
	for range 1 + 6 {
		if err := <-sc.results; err != nil {
			failed++
			if !errors.Is(err, backends.ErrUnavailable) || errors.Is(err, backends.ErrNotApplied) {
				t.Error(err)
			}
		}
	}
	if failed != 6 {
		t.Errorf("%d of 6 requests fail, and who was there before does not", failed)
	}
	s.burst.Store(false)
	reqs, out := ask(1)
	sc.b.Take(context.Background(), reqs, out)
	if out[0].Err != nil || counted.Load() != 1 {
		t.Errorf("afterwards: %v, %d panics counted", out[0].Err, counted.Load())
	}
	if err := sc.b.Close(); err != nil {
		t.Error(err)
	}
}
