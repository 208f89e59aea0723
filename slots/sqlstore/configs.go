package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// ActiveConfig implements slots.Store.
func (db *DB) ActiveConfig(ctx context.Context, name string) (slots.Config, error) {
	return db.config(ctx, db.pools.read, "read a config", db.dialect.statements.activeConfig.with(name))
}

// config runs a query for one config.
func (db *DB) config(ctx context.Context, on runner, op string, q query) (slots.Config, error) {
	var found []slots.Config
	err := db.rows(ctx, on, op, q, func(rows *sql.Rows) error {
		c, err := db.scanConfig(rows)
		found = append(found, c)
		return err
	})
	switch {
	case err != nil:
		return slots.Config{}, err
	case len(found) == 0:
		return slots.Config{}, slots.ErrConfigNotFound
	}
	return found[0], nil
}

// ActiveConfigs implements slots.Store.
func (db *DB) ActiveConfigs(ctx context.Context, limit int) (configs []slots.Config, err error) {
	q := db.dialect.statements.activeConfigs.with(limit)
	err = db.rows(ctx, db.pools.read, "read the configs", q, func(rows *sql.Rows) error {
		c, err := db.scanConfig(rows)
		configs = append(configs, c)
		return err
	})
	return configs, err
}

// scanConfig reads the columns configColumns.
func (db *DB) scanConfig(rows *sql.Rows) (c slots.Config, err error) {
	var size string
	var options sql.NullString
	var active int64
	if err := rows.Scan(&c.ID, &c.Name, &c.Max, &size, &options, db.into(&c.SinceUs), &active, db.into(&c.CreatedUs)); err != nil {
		return c, err
	}
	c.Active = active == 1
	if c.SizeMs, err = plan.ParseSize(size); err != nil {
		return c, fmt.Errorf("RL_EVENT_WNDW_CONFIG, row %s of config %q: %w; put a new version of the config", c.ID, c.Name, err)
	}
	if c.Options, err = parseOptions(options.String); err != nil {
		return c, fmt.Errorf("RL_EVENT_WNDW_CONFIG, row %s of config %q: CONFIG_OPT_TX: %w; put a new version of the config", c.ID, c.Name, err)
	}
	return c, nil
}

// PutConfig implements slots.Store. The generation comes first: its row makes
// those who put configs wait for each other (S0-34).
func (db *DB) PutConfig(ctx context.Context, c slots.Config, scope string) (put slots.Config, err error) {
	const op = "put a config"
	options, err := optionsText(c.Options)
	if err != nil {
		return put, err
	}
	s := &db.dialect.statements
	insert := s.insertConfig.with(c.ID, c.Name, c.Max, plan.FormatSize(c.SizeMs), sql.NullString{String: options, Valid: options != ""})
	err = db.transact(ctx, op, func(tx *sql.Tx) error {
		if _, err := db.change(ctx, tx, op, s.bump.with()); err != nil {
			return err
		}
		steps := []query{s.deactivate.with(c.Name), insert}
		switch resized, err := db.resized(ctx, tx, c); {
		case err != nil:
			return err
		case resized:
			steps = append(steps, s.dropFrontiers.with(scope, c.SizeMs), s.dropWindows.with(scope, c.SizeMs))
		}
		for _, q := range steps {
			if _, err := db.change(ctx, tx, op, q); err != nil {
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

// resized tells whether the version that c replaces has another size, as far as
// that one can be read.
func (db *DB) resized(ctx context.Context, tx *sql.Tx, c slots.Config) (bool, error) {
	old, err := db.config(ctx, tx, "put a config", db.dialect.statements.activeConfig.with(c.Name))
	switch {
	case errors.Is(err, slots.ErrConfigNotFound):
		return false, nil
	case err != nil && ctx.Err() == nil && slots.KindOf(err) == slots.Failed:
		return true, nil
	}
	return old.SizeMs != c.SizeMs, err
}

// Generation implements slots.Store.
func (db *DB) Generation(ctx context.Context) (n int64, err error) {
	return db.readGeneration(ctx, db.pools.read)
}

func (db *DB) readGeneration(ctx context.Context, on runner) (n int64, err error) {
	const op = "read the generation"
	ok, err := db.row(ctx, on, op, db.dialect.statements.generation.with(), &n)
	if err == nil && !ok {
		err = &slots.StoreError{Kind: slots.Failed, Op: op, Err: fmt.Errorf("RL_SLOT_CTL has no row 'generation': insert it with GEN_CT 0")}
	}
	return n, err
}

// Flush implements slots.Store.
func (db *DB) Flush(ctx context.Context) (generation int64, err error) {
	const op = "add to the generation"
	err = db.transact(ctx, op, func(tx *sql.Tx) error {
		if _, err := db.change(ctx, tx, op, db.dialect.statements.bump.with()); err != nil {
			return err
		}
		generation, err = db.readGeneration(ctx, tx)
		return err
	})
	return generation, err
}
