package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/notify"
)

const (
	// relayLock is the number of the advisory lock of the one gateway that publishes from
	// the outbox at a time; any that nobody else uses will do.
	relayLock  = "SELECT pg_try_advisory_xact_lock(7235403165208572)"
	insertText = "INSERT INTO notify_outbox (message_id, user_id, message, accepted_at)" +
		" SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[])"
	oldestText = "SELECT id, message_id, user_id, message, accepted_at FROM notify_outbox" +
		" WHERE NOT EXISTS (SELECT FROM unnest($2::text[]) AS behind (user_id) WHERE behind.user_id = " +
		"notify_outbox.user_id)" +
		" ORDER BY id LIMIT $1"
	deleteText = "DELETE FROM notify_outbox WHERE id = ANY($1)"
	// waitingText counts by the numbers of the messages as long as there are few. Numbers that are
	// far apart may have few messages between them, all behind one that cannot be published.
	waitingText = "SELECT CASE WHEN span < $1 / 2 THEN span ELSE (SELECT count(*) FROM (SELECT FROM notify_outbox LIMIT " +
		"$1) AS counted) END" +
		" FROM (SELECT COALESCE((SELECT max(id) FROM notify_outbox) - (SELECT min(id) FROM notify_outbox) + 1, " +
		"0) AS span) AS numbers"
)

const (
	relaySlice  = 500              // messages that are published together
	relayWithin = 10 * time.Second // bounds a slice
	relayIdle   = 200 * time.Millisecond
	relayOthers = 5 * time.Second // as relayIdle, where this gateway writes nothing to the outbox
	relayFailed = time.Second
	relaySays   = 10 * time.Second // how often a lasting failure is logged

	// behindFor is how long users are left out whose messages could not be published, so that those
	// of others are: a part of the topic may be away, or the brokers refuse a message for good. It
	// grows up to behindForMost while others go on, as each try may take relayWithin.
	behindFor, behindForMost = 5 * time.Second, 30 * time.Second
	behindMost               = 10_000 // users
)

var errOutboxFull = errors.New("too many messages wait in the outbox already")

// room returns an error if the outbox is full.
func (s *Store) room() error {
	if s.waiting.Load() >= s.outboxMax {
		return &notify.UnavailableError{Part: notify.Broker, Err: errOutboxFull}
	}
	return nil
}

// toOutbox returns the statement that writes messages to the outbox, in their order.
func toOutbox(messages ...notify.Message) sqldb.Query {
	var ids, users, texts []string
	var times []time.Time
	for _, m := range messages {
		ids, users, texts, times = append(ids, m.ID), append(users, m.UserID), append(texts, m.Text),
			append(times, m.AcceptedAt)
	}
	return sqldb.Query{Text: insertText, Rows: int64(len(messages)), Args: []any{ids, users, texts, times}}
}

// wake lets Relay look for messages at once.
func (s *Store) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// Relay publishes what is in the outbox, until ctx ends. Of several gateways one does at a
// time. It does so without an outbox of its own, too: a gateway that had one may have left
// messages there, which were accepted.
func (s *Store) Relay(ctx context.Context) {
	idle := relayIdle
	if !s.outbox {
		idle = relayOthers
	}
	var behind behind
	said := time.Time{}
	for ctx.Err() == nil {
		behind.expire()
		n, failure, err := s.relaySlice(ctx, &behind)
		failure = errors.Join(failure, err)
		if ctx.Err() != nil {
			return
		}
		if failure != nil && time.Since(said) > relaySays {
			said = time.Now()
			s.log.Warn("messages wait in the outbox", "error", failure, "users", len(behind.users))
		}
		pause, poke := idle, s.poke
		switch {
		case err != nil, failure != nil && n == 0:
			pause, poke = relayFailed, nil
		case n == relaySlice:
			continue
		}
		select {
		case <-ctx.Done():
		case <-poke:
		case <-time.After(pause):
		}
	}
}

// behind has the users with a message that could not be published. Their other messages wait until
// that one is tried again, with the messages of all of these users.
type behind struct {
	users  map[string]bool
	wait   time.Duration // until then, from the first of them
	until  time.Time
	others bool // messages of others were published meanwhile
}

// expire forgets all users when their wait is over, so that they are tried again.
func (b *behind) expire() {
	if len(b.users) > behindMost || len(b.users) > 0 && time.Now().After(b.until) {
		b.users = nil
	}
}

func (b *behind) add(user string) {
	if b.users == nil {
		b.wait = behindFor + min(b.wait, behindForMost-behindFor)
		if !b.others {
			b.wait = behindFor
		}
		b.users, b.others, b.until = map[string]bool{}, false, time.Now().Add(b.wait)
	}
	b.users[user] = true
}

// relaySlice publishes the oldest messages of users who are not behind, and removes those that were
// confirmed. A message is published again if this fails between the two. It returns how many it has
// removed, and why others could not be published.
func (s *Store) relaySlice(ctx context.Context, b *behind) (n int, failure, err error) {
	ctx, cancel := context.WithTimeout(ctx, relayWithin)
	defer cancel()
	err = s.db.Transact(ctx, "publish from the outbox", func(tx *sql.Tx) error {
		var waiting int64
		var mine bool
		if _, err := s.db.Row(ctx, tx, "count the outbox", sqldb.Query{Text: waitingText, Args: []any{s.outboxMax}},
			&waiting); err != nil {
			return err
		}
		s.waiting.Store(waiting)
		if waiting == 0 {
			return nil
		}
		if _, err := s.db.Row(ctx, tx, "lock the outbox", sqldb.Query{Text: relayLock}, &mine); err != nil || !mine {
			return err
		}
		ids, messages, err := s.oldest(ctx, tx, slices.Collect(maps.Keys(b.users)))
		if err != nil || len(ids) == 0 {
			return err
		}
		var done []int64
		done, failure = b.confirmed(ids, messages, s.publisher.Publish(ctx, messages))
		if len(done) == 0 {
			return nil
		}
		if _, err := s.db.Change(ctx, tx, "remove from the outbox",
			sqldb.Query{Text: deleteText, Args: []any{done}}); err != nil {
			return err
		}
		n = len(done)
		s.waiting.Add(-int64(n))
		return nil
	})
	return n, failure, err
}

func (s *Store) oldest(ctx context.Context, tx *sql.Tx,
	behind []string) (ids []int64, messages []notify.Message, err error) {
	err = s.db.Rows(ctx, tx, "read the outbox", sqldb.Query{Text: oldestText, Args: []any{relaySlice, behind}},
		func(rows *sql.Rows) error {
			var id, at int64
			var m notify.Message
			err := rows.Scan(&id, &m.ID, &m.UserID, &m.Text, s.db.Dialect.Into(&at))
			m.AcceptedAt = time.UnixMicro(at).UTC()
			ids, messages = append(ids, id), append(messages, m)
			return err
		})
	return ids, messages, err
}

// confirmed returns the ids of the messages that need not be published again. After a
// message that was not confirmed, the same user's are, in their order.
func (b *behind) confirmed(ids []int64, messages []notify.Message, results []error) (done []int64, failure error) {
	for i, err := range results {
		user := messages[i].UserID
		if err != nil {
			b.add(user)
			failure = err
		}
		if !b.users[user] {
			done = append(done, ids[i])
		}
	}
	b.others = len(b.users) > 0 && (b.others || len(done) > 0)
	return done, failure
}
