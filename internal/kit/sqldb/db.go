package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// A DB is a database: its dialect and its connections. It may be used from any goroutine.
type DB struct {
	Dialect *Dialect
	Address string // without a password, for logs
	// Read and Write are the connections. They are the same ones unless the database
	// wants a single one for writing.
	Read, Write *sql.DB
	// ReadOnly: a SQLite file is open for reading only, because of Config.ReadsSuffice.
	ReadOnly bool
	// Log gets what happens beside the calls.
	Log   *slog.Logger
	Hangs Hangs

	errors  func(*Error) error
	release func() error // what else is to be closed, or nil
	// opening are statements that a transaction begins with where sessions cannot be set up.
	opening func() []Query
	// returning reports whether INSERT … ON DUPLICATE KEY UPDATE … RETURNING is there; nil: no.
	returning func() bool
	poolMin   int
	warming   atomic.Bool // connections are being made ahead of need
	warm      sync.WaitGroup
	standing  chan *standing // that nobody uses
}

// Open returns a database. It does not connect: a database that is down is noticed by the
// first call. An error means that the Config is wrong. Close must be called.
func Open(c Config) (*DB, error) {
	c = c.withDefaults()
	d, src, err := parse(c)
	if err != nil {
		return nil, err
	}
	db := newDB(d, src.shown, c)
	if err := src.open(db); err != nil {
		return nil, err
	}
	return db, nil
}

// Over is Open for a driver of the caller's, such as a test's, in the place of the dialect's own.
func Over(d *Dialect, driver driver.Connector, c Config) *DB {
	c = c.withDefaults()
	db := newDB(d, d.Name, c)
	db.onePool(driver, c)
	return db
}

func newDB(d *Dialect, shown string, c Config) *DB {
	return &DB{Dialect: d, Address: shown, Log: c.Log.With("database", shown), errors: c.Errors, poolMin: c.PoolMin,
		opening: func() []Query { return nil },
		Hangs:   Hangs{turn: make(chan struct{}, 1)}, standing: make(chan *standing, c.PoolMin)}
}

// Close closes the connections; a caller that uses one at the moment gets an error.
func (db *DB) Close() error {
	db.warm.Wait()
	for len(db.standing) > 0 {
		(<-db.standing).end()
	}
	err := db.Write.Close()
	if db.Read != db.Write {
		err = errors.Join(err, db.Read.Close())
	}
	if db.release != nil {
		err = errors.Join(err, db.release())
	}
	return err
}

// Returning reports whether a statement that inserts or else locks rows can return them, as
// MariaDB's INSERT … ON DUPLICATE KEY UPDATE … RETURNING does. It is known once there has been a
// connection.
func (db *DB) Returning() bool { return db.returning != nil && db.returning() }

// InProcess reports whether the database computes in this process, as SQLite does.
func (db *DB) InProcess() bool { return db.Dialect.inProcess }

// yield is background.Yield, for a caller that goes on to wait for the database, unless that computes here.
func (db *DB) yield(ctx context.Context) (resume func()) {
	return background.YieldIf(ctx, !db.InProcess())
}

// Row runs a query for at most one row; ok is false if it returns no row.
func (db *DB) Row(ctx context.Context, on Session, op string, q Query, to ...any) (ok bool, err error) {
	resume := db.yield(ctx)
	err = on.QueryRowContext(q.running(ctx), q.Text, q.Args...).Scan(to...)
	resume()
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, db.Fail(ctx, op, err)
}

// Rows runs a query and calls each for every row.
func (db *DB) Rows(ctx context.Context, on Session, op string, q Query, each func(*sql.Rows) error) error {
	resume := db.yield(ctx) // until the first row is here: what comes then is computed
	rows, err := on.QueryContext(q.running(ctx), q.Text, q.Args...)
	resume()
	if err != nil {
		return db.Fail(ctx, op, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return db.Fail(ctx, op, err)
		}
	}
	return db.Fail(ctx, op, rows.Err())
}

// All runs a query and returns what scan makes of each row.
func All[T any](ctx context.Context, db *DB, on Session, op string, q Query,
	scan func(*sql.Rows) (T, error)) (all []T, err error) {
	err = db.Rows(ctx, on, op, q, func(rows *sql.Rows) error {
		one, err := scan(rows)
		all = append(all, one)
		return err
	})
	return all, err
}

// Change runs a statement and returns how many rows it changed. If these are not as many as
// the query says the error is of kind Failed.
func (db *DB) Change(ctx context.Context, on Session, op string, q Query) (int64, error) {
	resume := db.yield(ctx)
	res, err := on.ExecContext(q.running(ctx), q.Text, q.Args...)
	resume()
	if err != nil {
		return 0, db.Fail(ctx, op, err)
	}
	n, err := res.RowsAffected()
	if err == nil && q.Rows > 0 && n != q.Rows {
		err = fmt.Errorf("%d rows changed instead of %d: the row is gone, or was changed by hand", n, q.Rows)
	}
	return n, db.Fail(ctx, op, err)
}

// Transact runs f in a transaction of its own, which is rolled back if f returns an error.
// That error is returned as it is.
func (db *DB) Transact(ctx context.Context, op string, f func(*sql.Tx) error) error {
	resume := db.yield(ctx)
	tx, err := db.Write.BeginTx(ctx, nil)
	resume()
	if err != nil {
		return db.Fail(ctx, op, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	for _, q := range db.opening() {
		if _, err := db.Change(ctx, tx, op, q); err != nil {
			return err
		}
	}
	if err := f(tx); err != nil {
		return err
	}
	defer db.yield(ctx)()
	return db.Fail(ctx, op, tx.Commit())
}

// Fail returns the error that callers get for one of the driver: one of ctx if that has ended, or an
// Error, or what Config.Errors makes of it. An error that wraps an Error stays as it is.
func (db *DB) Fail(ctx context.Context, op string, err error) error {
	if e, ok := err.(*Error); ok {
		return db.errors(e)
	}
	switch {
	case err == nil, errors.As(err, new(*Error)):
		return err
	case ctx.Err() != nil && db.exhausted():
		return db.errors(&Error{Kind: Unavailable, Op: op, Err: fmt.Errorf("no connection to spare: %w", ctx.Err())})
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
	f := db.Dialect.meaning(err)
	if f.stale {
		db.shed()
	}
	return db.errors(&Error{Kind: f.kind, Op: op, Index: f.index, Declined: f.declined(), Schema: f.schema,
		ReadOnly: f.readOnly, Err: err})
}

// exhausted reports whether all connections are in use.
func (db *DB) exhausted() bool {
	s := db.Write.Stats()
	return s.MaxOpenConnections > 1 && s.InUse >= s.MaxOpenConnections
}

// shed closes the idle connections, so that the next ones are made anew.
func (db *DB) shed() {
	db.Write.SetMaxIdleConns(-1)
	db.Write.SetMaxIdleConns(db.Write.Stats().MaxOpenConnections)
}

// PoolStats are figures of the connections.
type PoolStats struct {
	Max, Open, InUse int
	Waits            int64 // how often a caller waited for a connection
	Waited           time.Duration
}

// Pool returns the figures of all connections, for reading and for writing.
func (db *DB) Pool() (all PoolStats) {
	for _, pool := range slices.Compact([]*sql.DB{db.Write, db.Read}) { // which may be one
		s := pool.Stats()
		all.Max += s.MaxOpenConnections
		all.Open += s.OpenConnections
		all.InUse += s.InUse
		all.Waits += s.WaitCount
		all.Waited += s.WaitDuration
	}
	return all
}

// WarmUp makes connections up to Config.PoolMin, in the background, unless that goes on
// already.
func (db *DB) WarmUp() {
	if !db.cold() || !db.warming.CompareAndSwap(false, true) {
		return
	}
	db.warm.Go(func() {
		defer db.warming.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		defer cancel()
		var made []*sql.Conn
		for db.cold() {
			conn, err := db.Write.Conn(ctx)
			if err != nil {
				break // the next caller gets the error
			}
			made = append(made, conn)
		}
		for _, conn := range made {
			_ = conn.Close() // back to the pool
		}
	})
}

// cold reports whether there are fewer connections than there should be.
func (db *DB) cold() bool {
	s := db.Write.Stats()
	return s.OpenConnections < min(db.poolMin, s.MaxOpenConnections)
}

// A Query is a text in the dialect of the database and what its placeholders stand for.
type Query struct {
	Text string
	Args []any
	Rows int64 // how many rows it must change; 0: any number
	// Each is called for every row, by methods of Tx; otherwise To is where the row goes, if there is
	// one, and Found is set to true then, unless it is nil. A query with neither must return no rows.
	Each  func(scan func(to ...any) error) error
	To    []any
	Found *bool
	// Kept: the text is one of a few, and the statement so quick that the context need not end
	// it. SQLite compiles it once for each connection.
	Kept bool
}

// reads reports whether a query returns rows.
func (q *Query) reads() bool { return q.Each != nil || q.To != nil }

// take takes a row.
func (q *Query) take(scan func(to ...any) error) error {
	if q.Each != nil {
		return q.Each(scan)
	}
	if q.Found != nil {
		*q.Found = true
	}
	return scan(q.To...)
}

// A Session is where statements run: a pool (*sql.DB), one connection of it (*sql.Conn) or a
// transaction (*sql.Tx).
type Session interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}
