package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// ActiveConfig implements slots.Store.
func (db *DB) ActiveConfig(ctx context.Context, name string) (slots.Config, error) {
	return db.config(ctx, db.sql.Read, "read a config", db.dialect.statements.activeConfig.with(name))
}

// config runs a query for one config.
func (db *DB) config(ctx context.Context, on sqldb.Session, op string, q query) (slots.Config, error) {
	found, err := sqldb.All(ctx, db.sql, on, op, q, db.scanConfig)
	switch {
	case err != nil:
		return slots.Config{}, err
	case len(found) == 0:
		return slots.Config{}, slots.ErrConfigNotFound
	}
	return found[0], nil
}

// ActiveConfigs implements slots.Store.
func (db *DB) ActiveConfigs(ctx context.Context, limit int) ([]slots.Config, error) {
	const op = "read the configs"
	found, bad, err := db.readableConfigs(ctx, db.sql.Read, op, db.dialect.statements.activeConfigs.with(limit))
	if err == nil && len(bad) > 0 {
		err = db.sql.Fail(ctx, op, &slots.UnreadableError{Configs: bad})
	}
	return found, err
}

// scanConfig reads the columns configColumns.
func (db *DB) scanConfig(rows *sql.Rows) (c slots.Config, err error) {
	var size string
	var options sql.NullString
	var active int64
	err = rows.Scan(&c.ID, &c.Name, &c.Max, &size, &options, db.into(&c.SinceUs), &active, db.into(&c.CreatedUs))
	c.Active = active == 1
	if err == nil {
		c.SizeMs, err = plan.ParseSize(size)
	}
	if err == nil {
		if c.Options, err = parseOptions(options.String); err != nil {
			err = fmt.Errorf("CONFIG_OPT_TX: %w", err)
		}
	}
	if err != nil {
		err = fmt.Errorf("RL_EVENT_WNDW_CONFIG, row %s: %w; put a new version of the config by "+
			"POST /admin/rate-limit/config", c.ID, err)
		err = &slots.UnreadableError{Configs: []slots.UnreadableConfig{{ID: c.ID, Name: c.Name, Err: err}}}
	}
	return c, err
}

// manyConfigs bounds the configs that PutConfig looks at.
const manyConfigs = 100_000

// PutConfig implements slots.Store. It never waits long for claims that are under way, since
// others would queue up behind it; it tries again until ctx ends.
func (db *DB) PutConfig(ctx context.Context, c slots.Config,
	seriesOf func(slots.Config) slots.Series) (put slots.Config, err error) {
	var held error
	for try := 0; ; try++ {
		put, err = db.putConfig(ctx, c, seriesOf, try)
		switch {
		case errors.Is(err, slots.ErrClaimUnderWay):
			held = err
		case err != nil && held != nil && ctx.Err() != nil:
			return put, held // rather than that time is up
		default:
			return put, err
		}
		if background.Sleep(ctx, gatePause/2+rand.N(gatePause)) != nil {
			return put, held
		}
	}
}

// gateWait bounds how long a change of a config waits for claims under way at a time, gatePause
// is about how long it stands back then.
const gateWait, gatePause = 50 * time.Millisecond, 100 * time.Millisecond

// shutGates takes the gates of versions. The error is slots.ErrClaimUnderWay if a claim holds
// one.
func (db *DB) shutGates(ctx context.Context, tx *sql.Tx, ids []string, try int) error {
	const op = "put a config"
	if db.dialect.shut == nil || len(ids) == 0 {
		return nil
	}
	var gates []query
	for _, id := range ids {
		gates = append(gates, db.dialect.statements.gateAll.with(id))
	}
	err := db.sql.Fail(ctx, op, db.dialect.shut(ctx, db.sql, tx, gates, try))
	if slots.KindOf(err) == slots.Held {
		return &slots.StoreError{Kind: slots.Held, Op: op, Err: fmt.Errorf("%w (%w)", slots.ErrClaimUnderWay, err)}
	}
	return err
}

// putConfig is one try. The generation comes first: its row makes those who put configs wait
// for each other.
func (db *DB) putConfig(ctx context.Context, c slots.Config, seriesOf func(slots.Config) slots.Series,
	try int) (put slots.Config, err error) {
	const op = "put a config"
	options, err := optionsText(c.Options)
	if err != nil {
		return put, err
	}
	s := &db.dialect.statements
	insert := s.insertConfig.with(c.ID, c.Name, c.Max, plan.FormatSize(c.SizeMs),
		sql.NullString{String: options, Valid: options != ""})
	err = db.sql.Transact(ctx, op, func(tx *sql.Tx) error {
		if _, err := db.sql.Change(ctx, tx, op, s.bump.with()); err != nil {
			return err
		}
		move, err := db.planMove(ctx, tx, c, seriesOf)
		if err != nil {
			return err
		}
		if err := db.holdConfigs(ctx, tx, move, try); err != nil {
			return err
		}
		steps := []query{s.deactivate.with(c.Name), insert}
		if move.count {
			to := seriesOf(c)
			steps = append(steps, s.dropFrontiers.with(to.Scope, to.SizeMs), s.dropRuns.with(to.Scope, to.SizeMs))
			if err := db.nextEpoch(ctx, tx, to); err != nil {
				return err
			}
		}
		for _, q := range steps {
			if _, err := db.sql.Change(ctx, tx, op, q); err != nil {
				return err
			}
		}
		put, err = db.config(ctx, tx, op, s.configByID.with(c.ID))
		return err
	})
	if err != nil {
		return slots.Config{}, err
	}
	return put, nil
}

// nextEpoch begins an epoch of a series: rows of earlier epochs count as missing. A claim counts
// its window again, and the purge deletes old rows.
func (db *DB) nextEpoch(ctx context.Context, tx *sql.Tx, to slots.Series) error {
	const op = "begin an epoch"
	s := &db.dialect.statements
	n, err := db.sql.Change(ctx, tx, op, s.bumpEpoch.with(to.Scope, to.SizeMs))
	if n == 0 && err == nil {
		_, err = db.sql.Change(ctx, tx, op, s.addEpoch.with(to.Scope, to.SizeMs))
	}
	return err
}

// A move is what a new version of a config means for windows.
type move struct {
	hold  []string // versions whose claims must not be under way
	leave []string // scopes that must have no slots
	count bool     // the windows of the new series are to be counted again
}

// holdConfigs waits for claims under way, and then looks whether the config may leave its
// scope: one of them may have been for its first slot.
func (db *DB) holdConfigs(ctx context.Context, tx *sql.Tx, m move, try int) error {
	const op = "put a config"
	s := &db.dialect.statements
	if err := db.shutGates(ctx, tx, m.hold, try); err != nil {
		return err
	}
	for _, scope := range m.leave {
		var id string
		if ok, err := db.sql.Row(ctx, tx, op, s.slotIn.with(scope), &id); ok || err != nil {
			return errors.Join(err, slots.ErrScopeInUse)
		}
	}
	return nil
}

// planMove compares the new version of a config with those that are active.
func (db *DB) planMove(ctx context.Context, tx *sql.Tx, c slots.Config,
	seriesOf func(slots.Config) slots.Series) (m move, err error) {
	const op = "put a config"
	active, bad, err := db.readableConfigs(ctx, tx, op, db.dialect.statements.activeConfigs.with(manyConfigs))
	if err != nil {
		return m, err
	}
	to, used, known := seriesOf(c), false, false
	for _, a := range active {
		if a.Name != c.Name {
			used = used || seriesOf(a) == to
			continue
		}
		known = true
		m.hold = append(m.hold, a.ID)
		from := seriesOf(a)
		m.count = from != to
		if from.Scope != to.Scope {
			m.leave = append(m.leave, from.Scope)
		}
	}
	// A series without configs may have windows from when it had some.
	m.count = m.count || !known && !used || len(bad) > 0
	for _, a := range active {
		if m.count && a.Name != c.Name && seriesOf(a).Scope == to.Scope {
			m.hold = append(m.hold, a.ID)
		}
	}
	slices.Sort(m.hold)
	return m, nil
}

// readableConfigs runs a query for configs and returns those that cannot be read apart.
func (db *DB) readableConfigs(ctx context.Context, on sqldb.Session, op string,
	q query) (found []slots.Config, bad []slots.UnreadableConfig, err error) {
	err = db.sql.Rows(ctx, on, op, q, func(rows *sql.Rows) error {
		c, err := db.scanConfig(rows)
		if unreadable, ok := errors.AsType[*slots.UnreadableError](err); ok {
			bad = append(bad, unreadable.Configs...)
		} else {
			found = append(found, c)
		}
		return nil
	})
	return found, bad, err
}

// Names of rows of RL_SLOT_CTL.
const (
	controlScope   = "scope"
	controlAdopted = "adopted"
)

// Scope implements slots.Store.
func (db *DB) Scope(ctx context.Context, want string) (string, error) {
	const op = "read the scope"
	want = cmp.Or(want, slots.ScopeConfig)
	scope, ok, err := db.control(ctx, controlScope)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "", &slots.StoreError{Kind: slots.Failed, Op: op,
			Err: errors.New("RL_SLOT_CTL has no row 'scope': run the migrations (headgate migrate)")}
	case scope != "":
		return scope, nil
	}
	if _, err := db.sql.Change(ctx, db.sql.Write, op, db.dialect.statements.setScope.with(want)); err != nil {
		return "", err
	}
	scope, _, err = db.control(ctx, controlScope)
	return scope, err
}

// Adopted implements slots.Store.
func (db *DB) Adopted(ctx context.Context) (bool, error) {
	_, ok, err := db.control(ctx, controlAdopted)
	return ok, err
}

// control reads a row of RL_SLOT_CTL.
func (db *DB) control(ctx context.Context, name string) (holder string, ok bool, err error) {
	var text sql.NullString
	ok, err = db.sql.Row(ctx, db.sql.Write, "read RL_SLOT_CTL", db.dialect.statements.control.with(name), &text)
	return text.String, ok, noSchema("read RL_SLOT_CTL", err)
}

// Generation implements slots.Store.
func (db *DB) Generation(ctx context.Context) (n int64, err error) {
	return db.readGeneration(ctx, db.sql.Read)
}

func (db *DB) readGeneration(ctx context.Context, on sqldb.Session) (n int64, err error) {
	const op = "read the generation"
	ok, err := db.sql.Row(ctx, on, op, db.dialect.statements.generation.with(), &n)
	if err == nil && !ok {
		err = &slots.StoreError{Kind: slots.Failed, Op: op,
			Err: fmt.Errorf("RL_SLOT_CTL has no row 'generation': insert it with GEN_CT 0")}
	}
	return n, err
}

// Flush implements slots.Store.
func (db *DB) Flush(ctx context.Context) (generation int64, err error) {
	const op = "add to the generation"
	err = db.sql.Transact(ctx, op, func(tx *sql.Tx) error {
		if _, err := db.sql.Change(ctx, tx, op, db.dialect.statements.bump.with()); err != nil {
			return err
		}
		generation, err = db.readGeneration(ctx, tx)
		return err
	})
	return generation, err
}
