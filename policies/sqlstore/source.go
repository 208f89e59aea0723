package sqlstore

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
)

// A Source keeps policies in force that are in a database: it brings the schema up to date, and
// follows what changes.
type Source struct {
	Store *Store
	Set   *policies.Set

	follower *table.Follower
	log      *slog.Logger
	migrated bool
}

var _ policies.Source = (*Source)(nil)

// A program that imports the package can keep policies in a database.
func init() {
	policies.Register(func(at policies.Location) (policies.Source, error) {
		store, err := Open(Config{URL: at.URL, Existing: !at.Migrate, Log: at.Log})
		if err != nil {
			return nil, err
		}
		return NewSource(store, at.Migrate, at.Log), nil
	})
}

// InForce implements [policies.Source].
func (s *Source) InForce() *policies.Set { return s.Set }

// NewSource returns a source of a store, which it closes. With migrate it brings the schema up to
// date. It does nothing until [Source.Start].
func NewSource(store *Store, migrate bool, log *slog.Logger) *Source {
	set := new(policies.Set)
	return &Source{Store: store, Set: set, follower: table.NewFollower(store, set, log), log: log, migrated: !migrate}
}

// Hint has the source look at once: this process knows of a change.
func (s *Source) Hint() { s.follower.Hint() }

// ReadOnly reports whether the database takes no changes.
func (s *Source) ReadOnly() bool { return s.follower.ReadOnly() }

// Start reads the policies if the database answers until ctx ends. It fails only if the database
// says that it cannot be used so; what passes is logged, and left to Run.
func (s *Source) Start(ctx context.Context) error {
	err := s.migrate(ctx)
	if err == nil {
		err = s.follower.Poll(ctx)
	}
	var known *sqldb.Error
	switch {
	case err == nil:
	case errors.As(err, &known) && known.Kind == sqldb.Failed:
		return err
	default:
		s.log.Error("the database of policies does not answer; rules decide by their own limits until it does", "error", err)
	}
	return nil
}

// migrate brings the schema up to date, unless that has been done.
func (s *Source) migrate(ctx context.Context) error {
	if s.migrated {
		return nil
	}
	_, err := s.Store.Migrate(ctx)
	s.migrated = err == nil
	return err
}

// migrateWithin bounds one try to bring the schema up to date.
const migrateWithin = time.Minute

// Run follows the database until ctx ends. A database that was not there at the start is migrated
// when it comes.
func (s *Source) Run(ctx context.Context) {
	for !s.migrated && ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, migrateWithin)
		err := s.migrate(short)
		cancel()
		if err == nil {
			break
		}
		_ = background.Sleep(ctx, time.Second)
	}
	s.follower.Run(ctx)
}

// Close closes the store, after Run has returned.
func (s *Source) Close() error { return s.Store.Close() }
