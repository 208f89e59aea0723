package background

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// A Reporter reports panics. A nil one, like a zero one, logs them only.
type Reporter struct {
	// Log gets one record per panic; nil means [slog.Default].
	Log *slog.Logger
	// Count counts panics by where they happened; nil counts nothing.
	Count func(where string)
}

// Do runs f. If f panics it reports that and returns an error that says so.
func (r *Reporter) Do(where string, f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.Report(where, p)
		}
	}()
	f()
	return nil
}

// Report reports a value that was recovered, and makes an error of it. It is
// called by the function that recovered, for the stack to be there.
func (r *Reporter) Report(where string, p any) error {
	log := slog.Default()
	if r != nil && r.Log != nil {
		log = r.Log
	}
	log.Error("panic", "where", where, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if r != nil && r.Count != nil {
		r.Count(where)
	}
	return fmt.Errorf("panic in %s: %v", where, p)
}

// Go runs f in a goroutine. What f owes to others it must do in a defer.
func (r *Reporter) Go(where string, f func()) {
	go func() {
		_ = r.Do(where, f) // it is reported
	}()
}

// AfterFunc runs f in a goroutine after d, as [time.AfterFunc] does.
func (r *Reporter) AfterFunc(where string, d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		_ = r.Do(where, f) // it is reported
	})
}

// Sleep waits for d. The error is that of ctx, if it ends before; also if d is not above zero.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
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
