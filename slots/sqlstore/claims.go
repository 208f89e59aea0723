package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// tx implements slots.Tx and slots.ClaimCommitter.
type tx struct {
	*sqldb.Tx
	db       *DB
	configID string
	locked   bool
	count    int64 // of the window, when it was locked
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
	if err := db.mayWrite(ctx); err != nil {
		return nil, err
	}
	t, err := db.sql.Begin(ctx, "begin a transaction")
	return &tx{Tx: t, db: db}, err
}

// mayWrite returns an error while commits hang. It writes to a leader's row, as the same leader in all processes.
func (db *DB) mayWrite(ctx context.Context) error {
	return db.sql.Hangs.Try(ctx, sqldb.IfHanging, func() error {
		if _, err := db.Lead(ctx, "commits", "all", 0); err != nil {
			return &slots.StoreError{Kind: slots.Unavailable, Op: "claim a slot",
				Err: fmt.Errorf("nothing is written while commits hang: %w", err)}
		}
		return nil
	})
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
	return nil, slots.Config{}, &slots.StoreError{Kind: slots.Passing, Op: "hold a config",
		Err: errors.New("the config changes too often")}
}

// holdActive holds the version of a config that is active when it looks. The one that it returns
// is not Active if another has replaced it before it was held.
func (t *tx) holdActive(ctx context.Context, name string) (slots.Config, error) {
	const op = "hold a config"
	st := &t.db.dialect.statements
	on, err := t.Session(ctx, op)
	if err != nil {
		return slots.Config{}, err
	}
	c, err := t.db.config(ctx, on, op, st.activeConfig.with(name))
	if err != nil || st.gate.text == "" {
		return c, err
	}
	if _, err := t.db.sql.Change(ctx, on, op, st.gate.with(c.ID)); err != nil {
		return c, gateHeld(err)
	}
	return t.db.config(ctx, on, op, st.configByID.with(c.ID))
}

// Place implements slots.Tables. It tries only windows that are thought to have a row, and room.
func (db *DB) Place(ctx context.Context, configID string, s slots.Series, windowMs, max int64,
	claimed []slots.Slot) (count int64, ok bool, err error) {
	const op = "place slots"
	window, n := slots.WindowKey{Series: s, StartMs: windowMs}, int64(len(claimed))
	known, is := db.known.count(window)
	if db.dialect.place == nil || !is || known+n > max || n > slots.MaxBatch {
		return 0, false, nil
	}
	if err := db.mayWrite(ctx); err != nil {
		return 0, false, err
	}
	t, err := db.sql.Begin(ctx, op)
	if err != nil {
		return 0, false, err
	}
	var active, now sql.NullInt64
	var first []query
	if !db.dialect.placeGates {
		first = db.gateQueries(configID, &active)
	}
	answered, err := t.Whole(ctx, op, append(first, db.dialect.place(configID, s, windowMs, max, claimed, &now)...))
	db.sql.Hangs.Committed(ctx, err)
	held := slots.KindOf(err) == slots.Held
	switch {
	case err == nil && now.Valid:
		db.known.set(window, now.Int64)
		return now.Int64 - n, true, nil
	case err == nil || db.dialect.refused != nil && db.dialect.refused(err) || held && db.dialect.placeGates:
		db.known.set(window, max) // nobody else tries it; who locks it learns the reason
		if held && db.isLocked(ctx, window, max) {
			return 0, false, err
		}
		return 0, false, nil
	case !answered:
		err = gateHeld(err)
	}
	return 0, false, err
}

// isLocked reports whether another transaction holds a window at this moment.
func (db *DB) isLocked(ctx context.Context, w slots.WindowKey, max int64) bool {
	lock := db.dialect.statements.lock.with(w.Scope, w.SizeMs, db.at(w.StartMs), max, "")
	lock.Text += " NOWAIT"
	var count int64
	_, err := db.sql.Row(ctx, db.sql.Write, "look at a window's lock", lock, &count)
	return slots.KindOf(err) == slots.Held
}

// Lock implements slots.Tx.
func (t *tx) Lock(ctx context.Context, s slots.Series, windowMs, max int64) (count int64, ok bool, err error) {
	const op = "lock a window"
	window := slots.WindowKey{Series: s, StartMs: windowMs}
	st, start, end := &t.db.dialect.statements, t.db.at(windowMs), t.db.at(windowMs+s.SizeMs)
	var active sql.NullInt64
	first := t.db.gateQueries(t.configID, &active)
	row := []query{st.make.with(s.Scope, s.SizeMs, start, end)}
	if st.remake.text != "" {
		row = append([]query{st.remake.with(s.Scope, s.SizeMs, start, end)}, row...)
	}
	lock := st.lock.with(s.Scope, s.SizeMs, start, max, t.configID)
	_, known := t.db.known.count(window)
	if !known {
		first = append(first, row...)
	}
	lock.To, lock.Found = []any{&count, &active}, &ok
	if t.db.dialect.gateActive {
		lock.To = lock.To[:1]
	}
	answered, err := t.Run(ctx, op, append(first, lock)...)
	t.locked = true
	if err != nil && !answered && t.db.dialect.gates(t.configID) {
		return count, ok, gateHeld(err)
	}
	if err == nil && !ok && known {
		err = t.lockUnknown(ctx, op, window, append(row, lock))
	}
	switch {
	case err == nil && active.Valid && active.Int64 == 0:
		err = &slots.StoreError{Kind: slots.Superseded, Op: op, Err: errors.New("the config has a newer version")}
	case err == nil && ok:
		t.count = count
		t.db.known.set(window, count)
	}
	return count, ok, err
}

// lockUnknown locks a window that was said to have a row, and that was not locked: it is full, or
// its row is gone, and is made again then.
func (t *tx) lockUnknown(ctx context.Context, op string, w slots.WindowKey, again []query) error {
	on, err := t.Session(ctx, op)
	if err != nil {
		return err
	}
	var full int64
	peek := t.db.dialect.statements.peek.with(w.Scope, w.SizeMs, t.db.at(w.StartMs))
	if there, err := t.db.sql.Row(ctx, on, op, peek, &full); there || err != nil {
		return err
	}
	return t.Change(ctx, op, again...)
}

// gates reports whether a transaction for a version of a config holds it.
func (d *dialect) gates(configID string) bool { return configID != "" && d.statements.gate.text != "" }

// gateQueries returns what a transaction runs before it locks a window: the gate, which stores ACT_IN in active if it
// returns that, or boundedWait. Both bound how long the statements that follow wait for locks.
func (db *DB) gateQueries(configID string, active *sql.NullInt64) []query {
	switch d := db.dialect; {
	case d.gates(configID):
		gate := d.statements.gate.with(configID)
		if !d.gateSilent {
			gate.To = []any{active}
		}
		return []query{gate}
	case d.boundedWait != "":
		return []query{{Text: d.boundedWait}}
	}
	return nil
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
			return err
		}
	}
	return nil
}

// Commit implements slots.Tx.
func (t *tx) Commit(ctx context.Context) error {
	err := t.Tx.Commit(ctx, "commit a slot")
	t.db.sql.Hangs.Committed(ctx, err)
	return err
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
	err := t.Tx.Commit(ctx, "claim a slot", t.db.dialect.claim(s, windowMs, claimed)...)
	t.db.sql.Hangs.Committed(ctx, err)
	if err == nil {
		t.db.known.set(slots.WindowKey{Series: s, StartMs: windowMs}, t.count+int64(len(claimed)))
	}
	return err
}
