package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/policies/table"
)

//go:embed migrations
var migrationFiles embed.FS

// schema is what policies keep. It may be in one database with that of slots and that of limits.
func schema() sqldb.Schema {
	return sqldb.Schema{Files: migrationFiles, History: "HEADGATE_POLICY_SCHEMA",
		Functions: []string{"HEADGATE_POLICY_NOW_US"}}
}

// Print returns all scripts for the database of a scheme, such as "postgres", as one that its own
// client program can run.
func Print(scheme string) (string, error) { return schema().Print(scheme) }

// Config says which database has the policies. Open has its own bounds of the pool and of waits.
type Config = sqldb.Config

// A Store has the policies of a database. Open makes one.
type Store struct {
	db   *sqldb.DB
	d    *dialect
	keep bounds
	// turns has an element for each change that goes on: changes wait for each other, and must
	// leave connections to those who read.
	turns chan struct{}
}

// bounds are how many changes the history has: of one key, and in all.
type bounds struct{ ofKey, all int64 }

var _ table.Store = (*Store)(nil)

// Times and sizes.
const (
	// lockWait is how long a change waits for the changes before it.
	lockWait = 10 * time.Second
	poolMax  = 6
	// maxChanging is how many changes go on at once: one that has the lock, and one that is next.
	maxChanging = 2
)

// Open returns a store. It does not connect: a database that is down is noticed by the first call.
// An error means that the Config is wrong. Close must be called.
func Open(c Config) (*Store, error) {
	c.PoolMin, c.PoolMax, c.LockWait, c.ReadsSuffice = 1, poolMax, lockWait, true
	db, err := sqldb.Open(c)
	if err != nil {
		return nil, err
	}
	return over(db), nil
}

// over returns a store on a database.
func over(db *sqldb.DB) *Store {
	return &Store{db, dialects[db.Dialect], bounds{table.HistoryOfKey, table.HistoryOfAll},
		make(chan struct{}, maxChanging)}
}

// Close closes the connections.
func (s *Store) Close() error { return s.db.Close() }

// Address returns where the database is, without a password.
func (s *Store) Address() string { return s.db.Address }

// Migrate brings the schema up to date, and returns the names of the scripts that it ran.
func (s *Store) Migrate(ctx context.Context) (applied []string, err error) {
	return s.db.Migrate(ctx, schema())
}

const stateOp, readOp, changeOp, listOp, historyOp = "read the state of policies", "read policies", "change policies",
	"list policies", "read the history of policies"

// failed adds to an error what to do about it.
func failed(err error) error {
	switch {
	case sqldb.IsReadOnly(err):
		return fmt.Errorf("%w: %w", table.ErrReadOnly, err)
	case sqldb.NoSchema(err):
		return fmt.Errorf("%w; run headgate migrate --policies URL, or have an administrator run what headgate migrate "+
			"--print prints", err)
	}
	return err
}

// State implements [table.Store].
func (s *Store) State(ctx context.Context) (table.State, error) {
	st, err := s.state(ctx, s.db.Read, "")
	return st, failed(err)
}

func (s *Store) state(ctx context.Context, on sqldb.Session, lock string) (st table.State, err error) {
	var readOnly int
	q := s.db.Dialect.Query("SELECT GENERATION, FLOOR_GENERATION, POLICIES, WATCH_FROM_US, WATCH_UNTIL_US, " + s.d.clock +
		", " + s.d.readOnly + " FROM HEADGATE_POLICY_STATE WHERE ID = 1" + lock)
	ok, err := s.db.Row(ctx, on, stateOp, q, &st.Generation, &st.Floor, &st.Policies, &st.WatchFrom,
		&st.WatchUntil, &st.Now, &readOnly)
	st.ReadOnly = s.db.ReadOnly || readOnly != 0
	if err == nil && !ok {
		err = errors.New("the table HEADGATE_POLICY_STATE has lost its row")
	}
	return st, err
}

// What the first column of the rows of Read says.
const (
	kindPolicy = iota
	kindGone
	kindState
)

// Read implements [table.Store].
func (s *Store) Read(ctx context.Context, after int64, each func(table.Row) error) (generation int64, err error) {
	text := fmt.Sprintf("SELECT %d, POLICY_KEY, TYPE, %s, %s, %s FROM HEADGATE_POLICY", kindPolicy, s.d.capacity(),
		s.d.amount("REFILL_RATE"), s.d.amount("WINDOW_SECONDS"))
	var args []any
	if after >= 0 {
		text += fmt.Sprintf(" WHERE GENERATION > ? UNION ALL SELECT %d, POLICY_KEY, '-', 0, '0', "+
			"'0' FROM HEADGATE_POLICY_GONE WHERE GENERATION > ?", kindGone)
		args = []any{after, after}
	}
	text += fmt.Sprintf(" UNION ALL SELECT %d, '-', '-', GENERATION, '0', '0' FROM HEADGATE_POLICY_STATE WHERE ID = 1",
		kindState)
	generation = -1
	err = s.db.Rows(ctx, s.db.Read, readOp, s.db.Dialect.Query(text, args...), func(rows *sql.Rows) error {
		var kind int
		var r table.Row
		if err := rows.Scan(&kind, &r.Key, &r.Type, &r.Capacity, &r.Refill, &r.Window); err != nil {
			return err
		}
		if kind == kindState {
			generation = r.Capacity
			return nil
		}
		r.Removed = kind == kindGone
		return each(r)
	})
	if err == nil && generation < 0 {
		err = errors.New("the table HEADGATE_POLICY_STATE has lost its row")
	}
	return generation, failed(err)
}

// Watch implements [table.Store].
func (s *Store) Watch(ctx context.Context, us int64) (st table.State, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		if st, err = s.state(ctx, tx, s.d.lock); err != nil {
			return err
		}
		if !st.Watched() {
			st.WatchFrom, st.WatchUntil = st.Now, st.Now
		}
		st.WatchUntil = max(st.WatchUntil, st.Now+us)
		_, err = s.db.Change(ctx, tx, changeOp, s.db.Dialect.Query(
			"UPDATE HEADGATE_POLICY_STATE SET WATCH_FROM_US = ?, WATCH_UNTIL_US = ? WHERE ID = 1", st.WatchFrom, st.WatchUntil))
		return err
	})
	return st, failed(err)
}

// tries bounds how often a transaction is tried that others have held up.
const tries = 5

// transact runs f in a transaction, and again if the database undid it because of others. An
// error of the commit is final: it may have taken effect.
func (s *Store) transact(ctx context.Context, f func(*sql.Tx) error) error {
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return fmt.Errorf("%s: other changes go on: %w", changeOp, ctx.Err())
	}
	for try := 1; ; try++ {
		committing := false
		err := s.db.Transact(ctx, changeOp, func(tx *sql.Tx) error {
			err := f(tx)
			committing = err == nil
			return err
		})
		kind := sqldb.KindOf(err)
		if err == nil || committing || try == tries || sqldb.IsReadOnly(err) || kind != sqldb.Passing && kind != sqldb.Held {
			return err
		}
	}
}

func (s *Store) change(ctx context.Context, on sqldb.Session, text string, args ...any) error {
	_, err := s.db.Change(ctx, on, changeOp, s.db.Dialect.Query(text, args...))
	return err
}

// columns are those that a policy is read from.
func (s *Store) columns() string {
	return strings.Join([]string{"ID, POLICY_KEY, TYPE", s.d.capacity(), s.d.amount("REFILL_RATE"),
		s.d.amount("WINDOW_SECONDS"), "VERSION, CHANGED_BY, CHANGED_US"}, ", ")
}

// policy reads a row of columns. A row that was written by hand may have an unknown type, or amounts
// that none may have: then the policy has no algorithm, and an edit changes it in any case.
func policy(rows *sql.Rows) (p table.Policy, err error) {
	var kind, refill, window string
	var by sql.NullString // in Oracle an empty text is NULL
	var capacity, us int64
	if err = rows.Scan(&p.ID, &p.Key, &kind, &capacity, &refill, &window, &p.Version, &by, &us); err != nil {
		return p, err
	}
	p.ChangedBy = by.String
	p.ChangedAt = time.UnixMicro(us).UTC()
	if p.Figures, err = table.ReadFigures(kind, capacity, refill, window); err != nil {
		p.Algorithm = 0
	}
	return p, nil
}

// Get implements [table.Store].
func (s *Store) Get(ctx context.Context, key string) (p table.Policy, ok bool, err error) {
	found, err := s.byKey(ctx, s.db.Read, []string{key})
	if err != nil || found[key] == nil {
		return p, false, failed(err)
	}
	return *found[key], true, nil
}

// List implements [table.Store].
func (s *Store) List(ctx context.Context, after, prefix string, n int) (all []table.Policy, err error) {
	// Keys are ASCII, above a blank and below 0x7f. An empty text is NULL in Oracle.
	const lowest = " "
	q := s.db.Dialect.Query("SELECT "+s.columns()+
		" FROM HEADGATE_POLICY WHERE POLICY_KEY > ? AND POLICY_KEY >= ? AND POLICY_KEY < ? ORDER BY POLICY_KEY"+
		strings.ReplaceAll(s.d.first, "#", strconv.Itoa(n)),
		cmp.Or(after, lowest), cmp.Or(prefix, lowest), prefix+"\x7f")
	all, err = sqldb.All(ctx, s.db, s.db.Read, listOp, q, policy)
	return all, failed(err)
}

// byKey reads the policies of keys, which are few.
func (s *Store) byKey(ctx context.Context, on sqldb.Session, keys []string) (map[string]*table.Policy, error) {
	found := make(map[string]*table.Policy, len(keys))
	places, args := sqldb.Listed(keys)
	q := s.db.Dialect.Query("SELECT "+s.columns()+" FROM HEADGATE_POLICY WHERE POLICY_KEY IN ("+places+")", args...)
	err := s.db.Rows(ctx, on, readOp, q, func(rows *sql.Rows) error {
		p, err := policy(rows)
		found[p.Key] = &p
		return err
	})
	return found, err
}
