package sqldb

import (
	"context"
	"sync/atomic"
)

// Hangs reports whether commits hang: MySQL and MariaDB with a binary log do not answer a commit while the
// disk is full. Such a commit keeps its session in the server after the caller has gone, and more of them
// would use up the server's sessions. So while commits hang, nothing else is written before a write to one
// row, which Try's caller chooses, has succeeded. A write that hangs locks that row, and the next ones fail
// when their wait for the lock ends.
type Hangs struct {
	on   atomic.Bool
	turn chan struct{} // has room for the one caller that writes to the row
}

// Committed records the result of a commit: commits hang if ctx ended before the answer.
func (h *Hangs) Committed(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		h.on.Store(true)
	}
}

// When says when [Hangs.Try] writes.
type When bool

// When Try writes.
const (
	Always    When = true
	IfHanging When = false
)

// Try runs write, which writes to the row. Callers take turns. The error is that of write, or that of ctx if it ends
// while Try waits for its turn.
func (h *Hangs) Try(ctx context.Context, when When, write func() error) error {
	if when == IfHanging && !h.on.Load() {
		return nil
	}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if when == IfHanging && !h.on.Load() {
		return nil
	}
	err := write()
	if err == nil {
		h.on.Store(false)
	}
	return err
}
