package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"time"
)

// A Tx is a transaction. Where the driver can send several statements together it is
// pipelined: what runs first goes along with the beginning and what runs last with the commit,
// which makes two round trips of it. It may be used from one goroutine at a time, and ends with
// Commit or Rollback.
type Tx struct {
	db *DB
	tx *sql.Tx // not pipelined

	standing *standing // nil if the driver ends the transaction, and once a standing one has ended

	conn  *sql.Conn // pipelined; nil once the transaction has ended
	begun bool

	doubtful bool
}

// Begin returns a transaction. It runs at the isolation of the session: READ COMMITTED, or
// serially.
func (db *DB) Begin(ctx context.Context, op string) (*Tx, error) {
	defer db.yield(ctx)()
	if db.Dialect.batch != nil {
		conn, err := db.Write.Conn(ctx)
		if err != nil {
			return nil, db.Fail(ctx, op, err)
		}
		return &Tx{db: db, conn: conn}, nil
	}
	tx, err := db.Write.BeginTx(ctx, nil)
	if err != nil {
		return nil, db.Fail(ctx, op, err)
	}
	return &Tx{db: db, tx: tx}, nil
}

// Pipelined reports whether statements are sent together.
func (t *Tx) Pipelined() bool { return t.tx == nil }

// What a batch has before and after the queries of a transaction.
var begin, commit = Query{Text: "BEGIN"}, Query{Text: "COMMIT"}

// Run runs queries. Pipelined, and first in the transaction, they are one round trip, and it is not checked
// how many rows they change; if one of them fails, answered reports whether the first that returns
// rows did not. If a query that was sent alone fails, it is true. What takes a row must not use the
// transaction.
func (t *Tx) Run(ctx context.Context, op string, queries ...Query) (answered bool, err error) {
	if t.tx != nil || t.conn == nil || t.begun {
		return true, t.Change(ctx, op, queries...)
	}
	defer t.db.yield(ctx)()
	answered, err = t.db.Dialect.batch(ctx, t.conn, append(t.beginning(), queries...))
	return answered, t.db.Fail(ctx, op, err)
}

// beginning is what a pipelined transaction begins with.
func (t *Tx) beginning() []Query {
	t.begun = true
	return append([]Query{begin}, t.db.opening()...)
}

// Whole begins, runs queries and commits if none of them fails, in one round trip. It ends the
// transaction, which must be pipelined and have run nothing yet. After an error, answered reports
// whether the first query that returns rows did not fail. After an error of the commit it is
// unknown whether it took effect.
func (t *Tx) Whole(ctx context.Context, op string, queries []Query) (answered bool, err error) {
	return t.commitBatch(ctx, op, append(t.beginning(), queries...))
}

// commitBatch ends a pipelined transaction by queries and a commit.
func (t *Tx) commitBatch(ctx context.Context, op string, queries []Query) (answered bool, err error) {
	defer t.db.yield(ctx)()
	answered, err = t.db.Dialect.batch(ctx, t.conn, slices.Concat(queries, []Query{commit}))
	if err != nil {
		t.doubtful = !t.db.Dialect.meaning(err).undone
		err = t.db.Fail(ctx, op, err)
		t.RollbackWithin(ctx)
		return answered, err
	}
	t.release()
	return answered, nil
}

// Change runs queries one by one. Each must change as many rows as it says.
func (t *Tx) Change(ctx context.Context, op string, queries ...Query) error {
	on, err := t.Session(ctx, op)
	for _, q := range queries {
		switch {
		case err != nil:
		case q.reads():
			err = t.db.Rows(ctx, on, op, q, func(rows *sql.Rows) error { return q.take(rows.Scan) })
		default:
			_, err = t.db.Change(ctx, on, op, q)
		}
	}
	return err
}

// Session is where to run single statements. It begins the transaction if nothing has.
func (t *Tx) Session(ctx context.Context, op string) (Session, error) {
	switch {
	case t.tx != nil:
		return t.tx, nil
	case t.conn == nil:
		return nil, t.db.Fail(ctx, op, sql.ErrTxDone)
	case !t.begun:
		if _, err := t.Run(ctx, "begin a transaction"); err != nil {
			return nil, err
		}
	}
	return t.conn, nil
}

// Commit runs the last statements and, if none of them fails, commits. Pipelined, it does not
// check how many rows they change. After an error of the commit it is unknown whether it took effect.
// Of a Standing transaction it runs the one last statement, which commits.
func (t *Tx) Commit(ctx context.Context, op string, last ...Query) error {
	if t.standing != nil {
		return t.commitStanding(ctx, op, last[0])
	}
	if t.tx != nil {
		if err := t.Change(ctx, op, last...); err != nil {
			t.Rollback()
			return err
		}
		defer t.db.yield(ctx)()
		err := t.db.Fail(ctx, op, t.tx.Commit())
		t.doubtful = err != nil
		return err
	}
	if t.conn == nil {
		return t.db.Fail(ctx, op, sql.ErrTxDone)
	}
	_, err := t.commitBatch(ctx, op, last)
	return err
}

func (t *Tx) commitStanding(ctx context.Context, op string, last Query) error {
	defer t.db.yield(ctx)()
	if _, err := t.tx.ExecContext(ctx, last.Text, last.Args...); err != nil {
		t.doubtful = !t.db.Dialect.meaning(err).undone
		err = t.db.Fail(ctx, op, err)
		t.RollbackWithin(ctx)
		return err
	}
	t.db.keep(t.standing)
	t.standing, t.tx = nil, nil
	return nil
}

// InDoubt reports, after an error of Commit, whether the transaction may have taken effect all the
// same: the commit was sent, and the database has not said that it failed.
func (t *Tx) InDoubt() bool { return t.doubtful }

// rollbackWithin bounds a rollback. If it takes longer the connection is closed,
// and the database ends the transaction.
const rollbackWithin = 5 * time.Second

// Rollback ends the transaction without a trace. After its end it does nothing. A transaction
// that cannot be rolled back has lost its connection, and the database ends it.
func (t *Tx) Rollback() {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackWithin)
	defer cancel()
	t.RollbackWithin(ctx)
}

// RollbackWithin is Rollback that closes the connection if ctx ends first.
func (t *Tx) RollbackWithin(ctx context.Context) {
	if s := t.standing; s != nil {
		t.standing, t.tx = nil, nil
		if _, err := s.tx.ExecContext(ctx, "ROLLBACK"); err != nil {
			t.db.drop(s)
			return
		}
		t.db.keep(s)
		return
	}
	if t.tx != nil {
		_ = t.tx.Rollback()
		return
	}
	if t.conn == nil {
		return
	}
	if t.begun {
		if _, err := t.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			// No other caller must get it with a transaction open.
			_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}
	t.release()
}

// release gives the connection back.
func (t *Tx) release() {
	_ = t.conn.Close()
	t.conn = nil
}

// A standing is a session whose transactions begin and end by what is sent, and not by the driver,
// for which one transaction goes on for as long as the session is kept. Oracle's driver spends a
// round trip on each beginning and one on each end.
type standing struct {
	tx    *sql.Tx
	since time.Time
	end   context.CancelFunc // has the driver roll back, and nobody waits for it
}

// Standing is Begin for an owner whose last statement commits by itself: see Tx.Commit. The session
// is kept for a transaction after this one. Up to Config.PoolMin sessions are.
func (db *DB) Standing(ctx context.Context, op string) (*Tx, error) {
	for {
		select {
		case s := <-db.standing:
			if time.Since(s.since) < maxLife {
				return &Tx{db: db, tx: s.tx, standing: s}, nil
			}
			s.end()
			continue
		default:
		}
		return db.newStanding(ctx, op)
	}
}

// newStanding makes a session that outlives ctx.
func (db *DB) newStanding(ctx context.Context, op string) (*Tx, error) {
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	tx, err := db.Write.BeginTx(lasting, nil)
	switch {
	case err != nil:
		stop()
		end()
		return nil, db.Fail(ctx, op, err)
	case !stop():
		return nil, db.Fail(ctx, op, ctx.Err())
	}
	return &Tx{db: db, tx: tx, standing: &standing{tx, time.Now(), end}}, nil
}

// keep gives a session back, whose transaction has ended.
func (db *DB) keep(s *standing) {
	select {
	case db.standing <- s:
	default:
		s.end()
	}
}

// drop ends a session whose state is unknown, and the idle ones: what broke this one may have broken
// them.
func (db *DB) drop(s *standing) {
	for s.end(); ; s.end() {
		select {
		case s = <-db.standing:
		default:
			return
		}
	}
}
