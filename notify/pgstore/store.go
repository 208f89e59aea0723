package pgstore

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/notify"
)

// A Publisher brings messages to the topic.
type Publisher interface {
	// Publish returns an error for each message that was not confirmed, in their order. It
	// returns within a bound of its own. A message that was not confirmed may be in the
	// topic all the same.
	Publish(ctx context.Context, messages []notify.Message) []error
}

// Config is what Open needs.
type Config struct {
	Database  sqldb.Config // whose URL must be PostgreSQL's
	Publisher Publisher
	// Outbox writes messages to the database with the count; Relay publishes them. Else
	// they are published before the count is stored.
	Outbox bool
	// OutboxMax bounds how many messages may wait there; 0: a million.
	OutboxMax int64
}

// A Store is the database of the gateway. It may be used from any goroutine.
type Store struct {
	db        *sqldb.DB
	log       *slog.Logger
	publisher Publisher
	outbox    bool
	outboxMax int64
	turns     turns
	letters   letters // to the outbox, of messages that were counted elsewhere

	waiting atomic.Int64  // messages in the outbox, as of the last look
	poke    chan struct{} // there is something to relay

	recounts, uncounted atomic.Int64
}

// Open returns the store. It does not connect. Close must be called.
func Open(c Config) (*Store, error) {
	db, err := sqldb.Open(c.Database)
	if err != nil {
		return nil, err
	}
	if db.Dialect != sqldb.Postgres {
		return nil, errors.Join(fmt.Errorf("the database is %s, but the notification gateway keeps its users in PostgreSQL",
			db.Dialect.Name), db.Close())
	}
	c.OutboxMax = cmp.Or(c.OutboxMax, 1_000_000)
	s := &Store{
		db: db, log: db.Log, publisher: c.Publisher, outbox: c.Outbox, outboxMax: c.OutboxMax,
		turns: turns{users: map[string]*turn{}}, poke: make(chan struct{}, 1),
	}
	s.letters.write = func(ctx context.Context, messages []notify.Message) error {
		_, err := s.db.Change(ctx, s.db.Write, "write to the outbox", toOutbox(messages...))
		return err
	}
	return s, nil
}

// Close closes the connections. Nobody may send any more.
func (s *Store) Close() error {
	s.letters.done.Wait() // within lettersWithin: nobody waits for what is left
	return s.db.Close()
}

// Address returns the address of the database, for logs.
func (s *Store) Address() string { return s.db.Address }

//go:embed migrations
var migrationFiles embed.FS

func schema() sqldb.Schema {
	return sqldb.Schema{Files: migrationFiles, History: "notify_schema_history"}
}

// Migrate brings the schema up to date and returns the scripts that it has run.
func (s *Store) Migrate(ctx context.Context) (applied []string, err error) {
	return s.db.Migrate(ctx, schema())
}

// noText locks no row, and fails where rows cannot be locked: on a replica, or a primary that has become one.
const noText = "SELECT 1 FROM rate_limit_store WHERE user_id = '' FOR UPDATE"

// Ping returns an error unless the database answers, has the schema and takes writes.
func (s *Store) Ping(ctx context.Context) error {
	missing, err := s.db.Missing(ctx, schema())
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("the schema lacks %s: start the gateway with --migrate", missing[0])
	}
	if err == nil {
		_, err = s.db.Row(ctx, s.db.Write, "ping the database", sqldb.Query{Text: noText}, new(int))
	}
	if err != nil {
		return unavailable(err)
	}
	s.db.WarmUp()
	return nil
}

// unavailable returns an error of the database as callers see it. What is not passing is an
// error of somebody's all the same: nothing was decided, and the log says why.
func unavailable(err error) error {
	if err == nil || errors.As(err, new(*notify.UnavailableError)) {
		return err
	}
	return &notify.UnavailableError{Part: notify.Store, Err: err}
}

// within returns a context that a client who hangs up does not end: what has begun is
// brought to its end, within the deadline.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	by, ok := ctx.Deadline()
	if !ok {
		by = time.Now().Add(5 * time.Second)
	}
	return context.WithDeadline(context.WithoutCancel(ctx), by)
}
