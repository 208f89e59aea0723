package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/headgate-rls/headgate/internal/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// tx implements slots.Tx and slots.ClaimCommitter.
type tx struct {
	*sqldb.Tx
	db       *DB
	configID string
	locked   bool
}

// Begin implements slots.Tables.
func (db *DB) Begin(ctx context.Context, configID string) (slots.Tx, error) {
	t, err := db.begin(ctx)
	if err != nil {
		return nil, err
	}
	t.configID = configID
	return t, nil
}

func (db *DB) begin(ctx context.Context) (*tx, error) {
	t, err := db.sql.Begin(ctx, "begin a transaction")
	return &tx{Tx: t, db: db}, storeError(err)
}

// activeTries bounds how often BeginActive holds a version that is replaced before it is held.
const activeTries = 20

// BeginActive implements slots.Tables.
func (db *DB) BeginActive(ctx context.Context, name string) (slots.Tx, slots.Config, error) {
	t, err := db.begin(ctx)
	if err != nil {
		return nil, slots.Config{}, err
	}
	for range activeTries {
		c, err := t.holdActive(ctx, name)
		if err != nil {
			t.Rollback()
			return nil, c, err
		}
		if c.Active {
			t.configID = c.ID
			return t, c, nil
		}
	}
	t.Rollback()
	return nil, slots.Config{}, &slots.StoreError{Kind: slots.Passing, Op: "hold a config", Err: errors.New("others change it all the time")}
}

// holdActive holds the version of a config that is active when it looks. The one that it returns
// is not Active if another has replaced it before it was held.
func (t *tx) holdActive(ctx context.Context, name string) (slots.Config, error) {
	const op = "hold a config"
	st := &t.db.dialect.statements
	on, err := t.Session(ctx, op)
	if err != nil {
		return slots.Config{}, storeError(err)
	}
	c, err := t.db.config(ctx, on, op, st.activeConfig.with(name))
	if err != nil || st.gate.text == "" {
		return c, err
	}
	if t.db.dialect.boundedWait != "" {
		if _, err := t.db.change(ctx, on, op, query{Text: t.db.dialect.boundedWait}); err != nil {
			return c, err
		}
	}
	if _, err := t.db.change(ctx, on, op, st.gate.with(c.ID)); err != nil {
		return c, gateHeld(err)
	}
	return t.db.config(ctx, on, op, st.configByID.with(c.ID))
}

// Lock implements slots.Tx.
func (t *tx) Lock(ctx context.Context, s slots.Series, windowMs, max int64) (count int64, ok bool, err error) {
	const op = "lock a window"
	var active sql.NullInt64
	gate, before, lock := t.db.lockQueries(t.configID, s, windowMs, max)
	ok, answered, err := t.Row(ctx, op, append(gate, before...), lock, &count, &active)
	t.locked = true
	switch {
	case err != nil && !answered && len(gate) > 0:
		return count, ok, gateHeld(storeError(err))
	case err == nil && active.Valid && active.Int64 == 0:
		err = &slots.StoreError{Kind: slots.Superseded, Op: op, Err: errors.New("the config has another version now")}
	}
	return count, ok, storeError(err)
}

// lockQueries are the statements of a lock: the gate if there is one, what comes before, and
// the lock itself.
func (db *DB) lockQueries(configID string, s slots.Series, windowMs, max int64) (gate, before []query, lock query) {
	st := &db.dialect.statements
	start := db.at(windowMs)
	end := db.at(windowMs + s.SizeMs)
	if db.dialect.boundedWait != "" {
		before = append(before, query{Text: db.dialect.boundedWait})
	}
	if configID != "" && st.gate.text != "" {
		gate = append(before, st.gate.with(configID))
		before = nil
	}
	if st.remake.text != "" {
		before = append(before, st.remake.with(s.Scope, s.SizeMs, start, end))
	}
	before = append(before, st.make.with(s.Scope, s.SizeMs, start, end))
	return gate, before, st.lock.with(s.Scope, s.SizeMs, start, max, configID)
}

// gateHeld makes of an error of the gate what it means: a version that is being changed is no
// reason to pass over a window.
func gateHeld(err error) error {
	if slots.KindOf(err) == slots.Held {
		return &slots.StoreError{Kind: slots.Passing, Op: "hold the version of a config", Err: errors.Unwrap(err)}
	}
	return err
}

// Claim implements slots.Tx.
func (t *tx) Claim(ctx context.Context, s slots.Series, windowMs int64, claimed []slots.Slot) error {
	for some := range slices.Chunk(claimed, slots.MaxBatch) {
		if err := t.Change(ctx, "claim a slot", t.db.dialect.claim(s, windowMs, some)...); err != nil {
			t.Rollback()
			return storeError(err)
		}
	}
	return nil
}

// Commit implements slots.Tx.
func (t *tx) Commit(ctx context.Context) error {
	return storeError(t.Tx.Commit(ctx, "commit a slot"))
}

// ClaimCommit implements slots.ClaimCommitter. Lock holds the window's row, so that
// the claim cannot miss it.
func (t *tx) ClaimCommit(ctx context.Context, s slots.Series, windowMs int64, claimed []slots.Slot) error {
	if !t.Pipelined() || !t.locked || len(claimed) > slots.MaxBatch {
		if err := t.Claim(ctx, s, windowMs, claimed); err != nil {
			return err
		}
		return t.Commit(ctx)
	}
	return storeError(t.Tx.Commit(ctx, "claim a slot", t.db.dialect.claim(s, windowMs, claimed)...))
}
