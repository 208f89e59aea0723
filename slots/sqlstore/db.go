package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/slots"
)

// DB is a Store in a database. It may be used from any goroutine.
type DB struct {
	dialect *dialect
	address Address
	pools   pools
	log     *slog.Logger

	poolMin int
	warming *atomic.Bool // connections are being made ahead of need
	warm    sync.WaitGroup
}

var _ slots.Store = (*DB)(nil)

// runner is a pool, a transaction or a connection.
type runner = session

// row runs a query for at most one row; ok=false if there is none.
func (db *DB) row(ctx context.Context, on runner, op string, q query, to ...any) (ok bool, err error) {
	err = on.QueryRowContext(ctx, q.text, q.args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, db.fail(ctx, op, err)
}

// rows runs a query and calls each for every row.
func (db *DB) rows(ctx context.Context, on runner, op string, q query, each func(*sql.Rows) error) error {
	rows, err := on.QueryContext(ctx, q.text, q.args...)
	if err != nil {
		return db.fail(ctx, op, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return db.fail(ctx, op, err)
		}
	}
	return db.fail(ctx, op, rows.Err())
}

// change runs a statement and returns how many rows it changed.
func (db *DB) change(ctx context.Context, on runner, op string, q query) (int64, error) {
	res, err := on.ExecContext(ctx, q.text, q.args...)
	if err != nil {
		return 0, db.fail(ctx, op, err)
	}
	n, err := res.RowsAffected()
	if err == nil && q.rows > 0 && n != q.rows {
		err = fmt.Errorf("%d rows changed instead of %d: the row is gone, or was changed by hand", n, q.rows)
	}
	return n, db.fail(ctx, op, err)
}

// transact runs f in a transaction of its own.
func (db *DB) transact(ctx context.Context, op string, f func(*sql.Tx) error) error {
	tx, err := db.pools.write.BeginTx(ctx, nil)
	if err != nil {
		return db.fail(ctx, op, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := f(tx); err != nil {
		return err
	}
	return db.fail(ctx, op, tx.Commit())
}

// fail makes what a caller sees of an error: one of ctx, or a StoreError.
func (db *DB) fail(ctx context.Context, op string, err error) error {
	var known *slots.StoreError
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case ctx.Err() != nil && db.exhausted():
		return &slots.StoreError{Kind: slots.Unavailable, Op: op, Err: fmt.Errorf("no connection to spare: %w", ctx.Err())}
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
	f, ok := lost(err)
	if !ok {
		f = db.dialect.classify(err)
	}
	if f.stale {
		db.shed()
	}
	return &slots.StoreError{Kind: f.kind, Op: op, Err: err}
}

// exhausted tells whether all connections are in use.
func (db *DB) exhausted() bool {
	s := db.pools.write.Stats()
	return s.MaxOpenConnections > 1 && s.InUse >= s.MaxOpenConnections
}

// shed closes the idle connections, so that the next ones are made anew.
func (db *DB) shed() {
	db.pools.write.SetMaxIdleConns(-1)
	db.pools.write.SetMaxIdleConns(db.pools.write.Stats().MaxOpenConnections)
}

// lost tells apart the errors of connections, which are the same for all drivers.
func lost(err error) (failure, bool) {
	var network *net.OpError
	var lookup *net.DNSError
	switch {
	case errors.As(err, &lookup):
		return failure{kind: slots.Unavailable}, true
	case errors.As(err, &network):
		if network.Op == "dial" {
			return failure{kind: slots.Unavailable}, true
		}
		return failure{kind: slots.Passing}, true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// Not the caller's: connecting took too long.
		return failure{kind: slots.Unavailable}, true
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return failure{kind: slots.Passing}, true
	}
	return failure{}, false
}

// Pool implements slots.Store.
func (db *DB) Pool() slots.PoolStats {
	s := db.pools.write.Stats()
	stats := slots.PoolStats{
		Max: s.MaxOpenConnections, Open: s.OpenConnections, InUse: s.InUse,
		Waits: s.WaitCount, Waited: s.WaitDuration,
	}
	if db.pools.read != db.pools.write {
		r := db.pools.read.Stats()
		stats.Max += r.MaxOpenConnections
		stats.Open += r.OpenConnections
		stats.InUse += r.InUse
		stats.Waits += r.WaitCount
		stats.Waited += r.WaitDuration
	}
	return stats
}

// Ping implements slots.Store. It also sees to it that there are PoolMin
// connections, in the background.
func (db *DB) Ping(ctx context.Context) error {
	const op = "ping the database"
	_, err := db.Generation(ctx)
	if err != nil {
		return noSchema(op, err)
	}
	done, err := db.history(ctx, db.pools.read)
	if err != nil {
		return noSchema(op, err)
	}
	for _, s := range db.dialect.scripts() {
		// What is repeatable may be of a newer program, which this one runs beside.
		if done[s.name] == "" {
			return &slots.StoreError{Kind: slots.Failed, Op: op, Err: fmt.Errorf(
				"the schema lacks %s: "+howToMigrate, s.name)}
		}
	}
	db.warmUp()
	return nil
}

const howToMigrate = "run headgate migrate, or have an administrator run what headgate migrate --print prints"

// noSchema says what to do if the tables that each database has cannot be read.
func noSchema(op string, err error) error {
	if slots.KindOf(err) != slots.Failed || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &slots.StoreError{Kind: slots.Failed, Op: op, Err: fmt.Errorf("the tables of slots are missing or cannot be read: "+howToMigrate+" (%w)", err)}
}

// warmUp makes connections up to PoolMin, unless that goes on already.
func (db *DB) warmUp() {
	if db.pools.write.Stats().OpenConnections >= min(db.poolMin, db.pools.write.Stats().MaxOpenConnections) || !db.warming.CompareAndSwap(false, true) {
		return
	}
	db.warm.Add(1)
	go func() {
		defer db.warm.Done()
		defer db.warming.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		defer cancel()
		var made []*sql.Conn
		for db.pools.write.Stats().OpenConnections < min(db.poolMin, db.pools.write.Stats().MaxOpenConnections) {
			conn, err := db.pools.write.Conn(ctx)
			if err != nil {
				break // the next caller gets the error
			}
			made = append(made, conn)
		}
		for _, conn := range made {
			_ = conn.Close() // back to the pool
		}
	}()
}

// Close implements slots.Store. It closes the connections; a caller that uses one at the moment gets an
// error.
func (db *DB) Close() error {
	db.warm.Wait()
	err := db.pools.write.Close()
	if db.pools.read != db.pools.write {
		err = errors.Join(err, db.pools.read.Close())
	}
	if db.pools.release != nil {
		err = errors.Join(err, db.pools.release())
	}
	return err
}

// newPool applies the limits of a Config.
func newPool(c driver.Connector, config Config) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(config.PoolMax)
	// Connections beyond PoolMin end by maxIdle instead: to open and close them
	// under changing load would cost more than to keep them.
	db.SetMaxIdleConns(config.PoolMax)
	db.SetConnMaxIdleTime(maxIdle)
	db.SetConnMaxLifetime(maxLife)
	return db
}

// instant reads an instant.
type instant struct {
	us   *int64
	null *bool // told whether it is NULL; nil if it cannot be
	read func(any) (int64, error)
}

// Scan implements sql.Scanner.
func (i instant) Scan(src any) (err error) {
	if src == nil && i.null != nil {
		*i.null = true
		return nil
	}
	*i.us, err = i.read(src)
	return err
}

// into reads an instant into us.
func (db *DB) into(us *int64) instant { return instant{us: us, read: db.dialect.micros} }

// at binds an instant of whole milliseconds.
func (db *DB) at(ms int64) any { return db.dialect.instant(ms * 1000) }

// millis rounds an instant down to milliseconds.
func millis(us int64) int64 {
	ms := us / 1000
	if us%1000 < 0 {
		ms--
	}
	return ms
}

// duplicate says what a duplicate key means, given the name of the index or the
// column as the database's message has it. Ids are made up for the occasion: one
// that is there already is that of an earlier try whose answer was lost, even if
// it is not to be seen yet. The name of a config is there because somebody else
// puts it, too.
func duplicate(index string) failure {
	name := strings.ToUpper(index)
	if strings.HasSuffix(name, "RL_EVENT_SLOT_DTL_IUX") || strings.HasSuffix(name, "RL_EVENT_SLOT_DTL.EVENT_ID") {
		return failure{kind: slots.Duplicate, index: index}
	}
	return failure{kind: slots.Passing, index: index}
}
