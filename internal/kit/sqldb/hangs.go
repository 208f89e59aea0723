package sqldb

import (
	"context"
	"sync/atomic"
)

// Hangs is what a process knows of commits that are not answered, as those of MySQL and MariaDB with a
// binary log are not while the disk is full. Such a commit keeps its session in the server after the
// caller has gone: further ones would take all sessions that the server has. So while commits hang,
// nothing is written unless a write to one row succeeds first. The write that hangs holds that row's
// lock, and others end with the wait for it.
type Hangs struct {
	on   atomic.Bool
	turn chan struct{} // one writes at a time
}

// Committed notes the end of a commit.
func (h *Hangs) Committed(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		h.on.Store(true)
	}
}

// Try runs write, which writes to the one row, when its turn has come: only if commits hang then, or always. The
// error is that of write, or the end of ctx while it waits for its turn.
func (h *Hangs) Try(ctx context.Context, always bool, write func() error) error {
	if !always && !h.on.Load() {
		return nil
	}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !always && !h.on.Load() {
		return nil
	}
	err := write()
	if err == nil {
		h.on.Store(false)
	}
	return err
}
