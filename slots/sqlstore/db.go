package sqlstore

import (
	"context"
	"database/sql"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// DB is a Store in a database. It may be used from any goroutine.
type DB struct {
	dialect *dialect
	sql     *sqldb.DB
	known   knownWindows
	hang    hang
}

var _ slots.Store = (*DB)(nil)

// Address returns what the URL that the store was opened with says.
func (db *DB) Address() string { return db.sql.Address }

// Pool implements slots.Store.
func (db *DB) Pool() slots.PoolStats { return slots.PoolStats(db.sql.Pool()) }

// Close implements slots.Store. It closes the connections; a caller that uses one at the moment gets an
// error.
func (db *DB) Close() error { return db.sql.Close() }

// row runs a query for at most one row; ok is false if it returns no row.
func (db *DB) row(ctx context.Context, on sqldb.Session, op string, q query, to ...any) (ok bool, err error) {
	ok, err = db.sql.Row(ctx, on, op, q, to...)
	return ok, storeError(err)
}

// rows runs a query and calls each for every row.
func (db *DB) rows(ctx context.Context, on sqldb.Session, op string, q query, each func(*sql.Rows) error) error {
	return storeError(db.sql.Rows(ctx, on, op, q, each))
}

// change runs a statement and returns how many rows it changed.
func (db *DB) change(ctx context.Context, on sqldb.Session, op string, q query) (int64, error) {
	n, err := db.sql.Change(ctx, on, op, q)
	return n, storeError(err)
}

// transact runs f in a transaction of its own.
func (db *DB) transact(ctx context.Context, op string, f func(*sql.Tx) error) error {
	return storeError(db.sql.Transact(ctx, op, f))
}

// fail makes what a caller sees of an error: one of ctx, or a StoreError.
func (db *DB) fail(ctx context.Context, op string, err error) error {
	return storeError(db.sql.Fail(ctx, op, err))
}

// into reads an instant into us.
func (db *DB) into(us *int64) sql.Scanner { return db.dialect.Into(us) }

// at binds an instant of whole milliseconds.
func (db *DB) at(ms int64) any { return db.dialect.Instant(ms * 1000) }

// millis rounds an instant down to milliseconds.
func millis(us int64) int64 {
	ms := us / 1000
	if us%1000 < 0 {
		ms--
	}
	return ms
}
