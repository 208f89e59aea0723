package background

import (
	"context"
	"time"
)

// Sleep waits for d. The error is that of ctx, if it ends before; also if d is not above zero.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Every does the work at once, and then after each interval until ctx ends.
func Every(ctx context.Context, interval time.Duration, work func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		work(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
