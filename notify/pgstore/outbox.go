package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/headgate-rls/headgate/internal/sqldb"
	"github.com/headgate-rls/headgate/notify"
)

const (
	// relayLock is the number of the advisory lock of the one gateway that publishes from
	// the outbox at a time; any that nobody else uses will do.
	relayLock  = "SELECT pg_try_advisory_xact_lock(7235403165208572)"
	insertText = "INSERT INTO notify_outbox (message_id, user_id, message, accepted_at) VALUES ($1, $2, $3, $4)"
	allText    = "INSERT INTO notify_outbox (message_id, user_id, message, accepted_at)" +
		" SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[])"
	oldestText  = "SELECT id, message_id, user_id, message, accepted_at FROM notify_outbox ORDER BY id LIMIT $1"
	deleteText  = "DELETE FROM notify_outbox WHERE id = ANY($1)"
	waitingText = "SELECT COALESCE((SELECT max(id) FROM notify_outbox) - (SELECT min(id) FROM notify_outbox) + 1, 0)"
)

const (
	relaySlice  = 500              // messages that are published together
	relayWithin = 10 * time.Second // bounds a slice
	relayIdle   = 200 * time.Millisecond
	relayFailed = time.Second
	relaySays   = 10 * time.Second // how often a lasting failure is logged
)

var errOutboxFull = errors.New("too many messages wait in the outbox already")

// room returns an error if the outbox is full.
func (s *Store) room() error {
	if s.waiting.Load() >= s.outboxMax {
		return &notify.UnavailableError{Part: notify.Broker, Err: errOutboxFull}
	}
	return nil
}

// toOutbox returns the statement that writes a message to the outbox.
func toOutbox(m notify.Message) sqldb.Query {
	return sqldb.Query{Text: insertText, Rows: 1, Args: []any{m.ID, m.UserID, m.Text, m.AcceptedAt}}
}

// insert writes messages to the outbox, in their order.
func (s *Store) insert(ctx context.Context, messages []notify.Message) error {
	var ids, users, texts []string
	var times []time.Time
	for _, m := range messages {
		ids, users, texts, times = append(ids, m.ID), append(users, m.UserID), append(texts, m.Text), append(times, m.AcceptedAt)
	}
	q := sqldb.Query{Text: allText, Rows: int64(len(messages)), Args: []any{ids, users, texts, times}}
	_, err := s.db.Change(ctx, s.db.Write, "write to the outbox", q)
	return err
}

// wake tells Relay that there is something to do.
func (s *Store) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// Relay publishes what is in the outbox, until ctx ends. Of several gateways one does at a
// time.
func (s *Store) Relay(ctx context.Context) {
	if !s.outbox {
		return
	}
	failing, said := false, time.Time{}
	for ctx.Err() == nil {
		n, err := s.relaySlice(ctx)
		pause := relayIdle
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing || time.Since(said) > relaySays {
				said = time.Now()
				s.log.Warn("messages wait in the outbox", "error", err)
			}
			pause = relayFailed
		case n == relaySlice:
			pause = 0
		}
		failing = err != nil
		if pause == 0 {
			continue
		}
		poke := s.poke
		if failing {
			poke = nil
		}
		select {
		case <-ctx.Done():
		case <-poke:
		case <-time.After(pause):
		}
	}
}

// relaySlice publishes the oldest messages and removes those that were confirmed. A message
// is published again if this fails between the two.
func (s *Store) relaySlice(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, relayWithin)
	defer cancel()
	err = s.db.Transact(ctx, "publish from the outbox", func(tx *sql.Tx) error {
		var waiting int64
		var mine bool
		if _, err := s.db.Row(ctx, tx, "count the outbox", sqldb.Query{Text: waitingText}, &waiting); err != nil {
			return err
		}
		s.waiting.Store(waiting)
		if waiting == 0 {
			return nil
		}
		if _, err := s.db.Row(ctx, tx, "lock the outbox", sqldb.Query{Text: relayLock}, &mine); err != nil || !mine {
			return err
		}
		ids, messages, err := s.oldest(ctx, tx)
		if err != nil || len(ids) == 0 {
			return err
		}
		n = len(ids)
		done, failure := confirmed(ids, messages, s.publisher.Publish(ctx, messages))
		if len(done) > 0 {
			if _, err := s.db.Change(ctx, tx, "remove from the outbox", sqldb.Query{Text: deleteText, Args: []any{done}}); err != nil {
				return err
			}
			s.waiting.Add(-int64(len(done)))
		}
		if failure != nil && len(done) > 0 { // keep what was done; the next slice meets the failure again
			s.log.Warn("messages wait in the outbox", "error", failure)
			return nil
		}
		return failure
	})
	return n, err
}

func (s *Store) oldest(ctx context.Context, tx *sql.Tx) (ids []int64, messages []notify.Message, err error) {
	err = s.db.Rows(ctx, tx, "read the outbox", sqldb.Query{Text: oldestText, Args: []any{relaySlice}}, func(rows *sql.Rows) error {
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
func confirmed(ids []int64, messages []notify.Message, results []error) (done []int64, failure error) {
	behind := map[string]bool{}
	for i, err := range results {
		user := messages[i].UserID
		if err != nil {
			behind[user], failure = true, err
		}
		if !behind[user] {
			done = append(done, ids[i])
		}
	}
	return done, failure
}
