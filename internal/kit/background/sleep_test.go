package background

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestSleepLastsAsLongAsItsContext: it waits for its time, not longer than its context, and not at all if there is
// nothing to wait for.
func TestSleepLastsAsLongAsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ sleep, life, want time.Duration }{
			{time.Second, time.Hour, time.Second}, {time.Hour, time.Second, time.Second}, {0, time.Second, 0},
			{-1, time.Second, 0},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.life)
			began := time.Now()
			err := Sleep(ctx, c.sleep)
			if took := time.Since(began); took != c.want || errors.Is(err, context.DeadlineExceeded) != (c.life < c.sleep) {
				t.Errorf("Sleep(%v) took %v in a context of %v, want %v; %v", c.sleep, took, c.life, c.want, err)
			}
			cancel()
			if err := Sleep(ctx, 0); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after the end of its context: %v", err)
			}
		}
	})
}
