package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// A pipeline sends the statements of a transaction together: the lock with the
// beginning, and the claim with the commit.
type pipeline struct {
	// begin begins a transaction, runs what comes before the lock, and the lock, whose
	// row it reads. After an error there may be a transaction or not.
	begin func(ctx context.Context, conn *sql.Conn, before []query, lock query, to ...any) (ok bool, err error)
	// end runs the claim and, if nothing of it fails, commits.
	end func(ctx context.Context, conn *sql.Conn, claim []query) error
}

// pipelined implements slots.Tx and slots.ClaimCommitter.
type pipelined struct {
	db       *DB
	configID string
	conn     *sql.Conn // nil once the transaction has ended
	begun    bool
}

// Lock implements slots.Tx. The first one begins the transaction.
func (t *pipelined) Lock(ctx context.Context, s slots.Series, windowMs, max int64) (count int64, ok bool, err error) {
	const op = "lock a window"
	if t.conn == nil {
		return 0, false, t.db.fail(ctx, op, sql.ErrTxDone)
	}
	if t.begun {
		return t.db.lock(ctx, t.conn, t.configID, s, windowMs, max)
	}
	t.begun = true
	var active sql.NullInt64
	before, lock := t.db.lockQueries(t.configID, s, windowMs, max)
	ok, err = t.db.dialect.pipeline.begin(ctx, t.conn, before, lock, &count, &active)
	return count, ok, t.db.locked(ctx, op, active, err)
}

// Claim implements slots.Tx.
func (t *pipelined) Claim(ctx context.Context, s slots.Series, windowMs int64, claimed []slots.Slot) error {
	if t.conn == nil {
		return t.db.fail(ctx, "claim a slot", sql.ErrTxDone)
	}
	if !t.begun {
		t.begun = true
		if _, err := t.conn.ExecContext(ctx, "BEGIN"); err != nil {
			return t.db.fail(ctx, "begin a transaction", err)
		}
	}
	err := t.db.claim(ctx, t.conn, s, windowMs, claimed)
	if err != nil {
		t.Rollback()
	}
	return err
}

// Commit implements slots.Tx.
func (t *pipelined) Commit(ctx context.Context) error {
	if t.conn == nil {
		return t.db.fail(ctx, "commit a slot", sql.ErrTxDone)
	}
	return t.ended(t.db.fail(ctx, "commit a slot", t.db.dialect.pipeline.end(ctx, t.conn, nil)))
}

// ClaimCommit implements slots.ClaimCommitter. Lock holds the window's row, so that
// the claim cannot miss it.
func (t *pipelined) ClaimCommit(ctx context.Context, s slots.Series, windowMs int64, claimed []slots.Slot) error {
	if t.conn == nil || !t.begun || len(claimed) > slots.MaxBatch {
		if err := t.Claim(ctx, s, windowMs, claimed); err != nil {
			return err
		}
		return t.Commit(ctx)
	}
	queries := t.db.dialect.claim(s, windowMs, claimed)
	return t.ended(t.db.fail(ctx, "claim a slot", t.db.dialect.pipeline.end(ctx, t.conn, queries)))
}

// ended ends the transaction, after a commit or an error.
func (t *pipelined) ended(err error) error {
	if err != nil {
		t.Rollback()
		return err
	}
	t.release()
	return nil
}

// rollbackWithin bounds a rollback. If it takes longer the connection is closed,
// and the database ends the transaction.
const rollbackWithin = 5 * time.Second

// Rollback implements slots.Tx.
func (t *pipelined) Rollback() {
	if t.conn == nil {
		return
	}
	if t.begun {
		ctx, cancel := context.WithTimeout(context.Background(), rollbackWithin)
		defer cancel()
		if _, err := t.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			// Nobody must find it with a transaction open.
			_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}
	t.release()
}

// release gives the connection back.
func (t *pipelined) release() {
	_ = t.conn.Close()
	t.conn = nil
}
