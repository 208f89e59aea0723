package sqldb

import (
	"context"
	"database/sql"
	"time"
)

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

// drop ends a session of which nobody knows where it stands, and those that nobody uses: what ended
// this one may have ended them.
func (db *DB) drop(s *standing) {
	for s.end(); ; s.end() {
		select {
		case s = <-db.standing:
		default:
			return
		}
	}
}

// rollback ends the transaction, and with it the session if that does not succeed.
func (s *standing) rollback(ctx context.Context, db *DB) {
	if _, err := s.tx.ExecContext(ctx, "ROLLBACK"); err != nil {
		db.drop(s)
		return
	}
	db.keep(s)
}
