package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/notify"
)

const (
	lockText = "SELECT rate_limit, time_window, current_count, reserved_count, last_refresh_time, row_version, " +
		"clock_timestamp()" +
		" FROM rate_limit_store WHERE user_id = $1 FOR UPDATE"
	updateText = "UPDATE rate_limit_store SET current_count = $2, reserved_count = $3, last_refresh_time = $4 WHERE " +
		"user_id = $1"
	configText = "INSERT INTO rate_limit_store (user_id, rate_limit, time_window, last_refresh_time) VALUES ($1, $2, " +
		"$3, clock_timestamp())" +
		" ON CONFLICT (user_id) DO UPDATE SET rate_limit = EXCLUDED.rate_limit, time_window = EXCLUDED.time_window," +
		// Not EXCLUDED's: these are as of now, when the row is locked.
		" current_count = 0, reserved_count = 0, last_refresh_time = clock_timestamp(), " +
		"row_version = nextval('rate_limit_store_version')" +
		" RETURNING last_refresh_time"
)

// Configure saves what an administrator says about a user. It begins a new window with
// nothing counted, and returns when that begins by the clock of the database.
func (s *Store) Configure(ctx context.Context, c notify.Config) (start time.Time, err error) {
	ctx, cancel := within(ctx)
	defer cancel()
	var startUs int64
	q := sqldb.Query{Text: configText, Args: []any{c.UserID, c.RateLimit, c.Minutes}}
	_, err = s.db.Row(ctx, s.db.Write, "save a user", q, s.db.Dialect.Into(&startUs))
	return time.UnixMicro(startUs).UTC(), unavailable(err)
}

// A locked is a user's row under its lock, refreshed, and the transaction that holds it.
type locked struct {
	tx    *sqldb.Tx
	user  string
	row   notify.Row
	found notify.Row // as it is stored
	nowUs int64
}

// lock begins a transaction that holds the lock of a user's row.
func (s *Store) lock(ctx context.Context, user string) (*locked, error) {
	const op = "lock a user's row"
	tx, err := s.db.Begin(ctx, op)
	if err != nil {
		return nil, unavailable(err)
	}
	l := &locked{tx: tx, user: user}
	r, d := &l.found, s.db.Dialect
	there := false
	_, err = tx.Run(ctx, op, sqldb.Query{Text: lockText, Args: []any{user}, Found: &there, To: []any{
		&r.RateLimit, &r.Minutes, &r.Count, &r.Reserved, d.Into(&r.StartUs), &r.Version, d.Into(&l.nowUs)}})
	if err = unavailable(err); err == nil && !there {
		err = notify.ErrNoConfig
	}
	if err != nil {
		tx.Rollback()
		return nil, err
	}
	l.row = r.At(l.nowUs)
	return l, nil
}

// commit stores the row, runs what else belongs to it, and ends the transaction.
func (l *locked) commit(ctx context.Context, also ...sqldb.Query) error {
	if l.row != l.found {
		also = append(also, sqldb.Query{Text: updateText, Rows: 1,
			Args: []any{l.user, l.row.Count, l.row.Reserved, sqldb.Postgres.Instant(l.row.StartUs)}})
	}
	return unavailable(l.tx.Commit(ctx, "store a user's row", also...))
}

// refusal returns the error of a full window, which ends at a rest from now.
func (l *locked) refusal() error {
	return &notify.LimitedError{Limit: l.row.RateLimit, Rest: l.row.Rest(l.nowUs)}
}

// Send decides about a message under the lock of its user's row: it refreshes the window,
// looks for room, delivers the message and counts it.
func (s *Store) Send(ctx context.Context, m notify.Message) (notify.Accepted, error) {
	var none notify.Accepted
	release, err := s.turns.take(ctx, m.UserID)
	if err != nil {
		return none, unavailable(err)
	}
	defer release()
	ctx, cancel := within(ctx)
	defer cancel()
	l, err := s.lock(ctx, m.UserID)
	if err != nil {
		return none, err
	}
	defer l.tx.Rollback()
	next, ok := l.row.Take()
	if !ok {
		if err := l.commit(ctx); err != nil {
			return none, err
		}
		return none, l.refusal()
	}
	accepted := notify.Accepted{Limit: next.RateLimit, Remaining: next.RateLimit - next.Taken()}
	l.row = next
	if s.outbox {
		err := s.room()
		if err == nil {
			err = l.commit(ctx, toOutbox(m))
		}
		s.wake()
		return accepted, err
	}
	if err := s.publish(ctx, m); err != nil {
		return none, err
	}
	if err := l.commit(ctx); err != nil {
		return accepted, s.recount(ctx, l, err)
	}
	return accepted, nil
}

// recount counts a message that is published, when the commit that was to count it has
// failed. That commit may have taken effect all the same: then the message counts twice.
func (s *Store) recount(ctx context.Context, lost *locked, cause error) error {
	lost.tx.Rollback()
	for try := 0; ctx.Err() == nil; try++ {
		l, err := s.lock(ctx, lost.user)
		if err == nil {
			if l.row.Version == lost.row.Version {
				l.row = l.row.Recount()
			}
			err = l.commit(ctx)
		}
		if err == nil || errors.Is(err, notify.ErrNoConfig) {
			s.recounts.Add(1)
			return nil
		}
		_ = background.Sleep(ctx, min(10*time.Millisecond<<min(try, 5), 250*time.Millisecond))
	}
	s.uncounted.Add(1)
	s.log.Error("a message was published and could not be counted", "user", lost.user, "error", cause)
	return cause
}

// Deliver delivers a message that was counted elsewhere: it publishes it, or writes it to the
// outbox.
func (s *Store) Deliver(ctx context.Context, m notify.Message) error {
	ctx, cancel := within(ctx)
	defer cancel()
	if !s.outbox {
		return s.publish(ctx, m)
	}
	if err := s.room(); err != nil {
		return err
	}
	err := s.letters.add(ctx, m)
	s.wake()
	return unavailable(err)
}

func (s *Store) publish(ctx context.Context, m notify.Message) error {
	return s.publisher.Publish(ctx, []notify.Message{m})[0]
}
