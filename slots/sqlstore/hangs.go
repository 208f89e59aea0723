package sqlstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/headgate-rls/headgate/slots"
)

// A hang is what a process knows of commits that are not answered, as those of MySQL and MariaDB with a
// binary log are not while the disk is full. Such a commit keeps its session in the server after the
// caller has gone: further ones would take all sessions that the server has. So while commits hang,
// nothing is claimed unless a write to one row succeeds first. The write that hangs holds that row's
// lock, and others end with the wait for it.
type hang struct {
	on   atomic.Bool
	turn chan struct{} // one writes at a time
}

func newHang() hang { return hang{turn: make(chan struct{}, 1)} }

// The row is one of those that leaders hold, and all processes are the same leader.
const hangWork, hangHolder = "commits", "all"

// committed notes the end of a commit.
func (db *DB) committed(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		db.hang.on.Store(true)
	}
}

// mayWrite waits until commits are answered.
func (db *DB) mayWrite(ctx context.Context) error {
	if !db.hang.on.Load() {
		return nil
	}
	select {
	case db.hang.turn <- struct{}{}:
		defer func() { <-db.hang.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !db.hang.on.Load() {
		return nil
	}
	if _, err := db.Lead(ctx, hangWork, hangHolder, 0); err != nil {
		return &slots.StoreError{Kind: slots.Unavailable, Op: "claim a slot",
			Err: fmt.Errorf("nothing is written while commits hang: %w", err)}
	}
	db.hang.on.Store(false)
	return nil
}
