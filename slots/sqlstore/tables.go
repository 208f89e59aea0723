package sqlstore

import (
	"context"
	"database/sql"
	"slices"

	"github.com/headgate-rls/headgate/slots"
)

// Find implements slots.Tables.
func (db *DB) Find(ctx context.Context, eventIDs []string) ([]slots.Slot, error) {
	var found []slots.Slot
	for ids := range slices.Chunk(eventIDs, slots.MaxBatch) {
		more, err := db.slots(ctx, "find the slots of events", db.dialect.find(ids))
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// slots runs a query for slots.
func (db *DB) slots(ctx context.Context, op string, q query) (found []slots.Slot, err error) {
	err = db.rows(ctx, db.pools.read, op, q, func(rows *sql.Rows) error {
		s, err := db.scanSlot(rows)
		found = append(found, s)
		return err
	})
	return found, err
}

// scanSlot reads the columns slotColumns.
func (db *DB) scanSlot(row interface{ Scan(...any) error }) (slots.Slot, error) {
	var s slots.Slot
	var windowUs, scheduledUs int64
	err := row.Scan(&s.ID, &s.EventID, &s.Scope, &s.SizeMs, db.into(&s.RequestedUs),
		db.into(&windowUs), db.into(&scheduledUs), &s.ConfigID, db.into(&s.CreatedUs))
	s.WindowMs, s.ScheduledMs = millis(windowUs), millis(scheduledUs)
	return s, err
}

// Peek implements slots.Tables.
func (db *DB) Peek(ctx context.Context, s slots.Series, windowMs int64) (count int64, ok bool, err error) {
	q := db.dialect.statements.peek.with(s.Scope, s.SizeMs, db.at(windowMs))
	ok, err = db.row(ctx, db.pools.read, "read a window", q, &count)
	return count, ok, err
}

// Scout implements slots.Tables.
func (db *DB) Scout(ctx context.Context, s slots.Series, fromMs, toMs, max int64) (windowMs int64, ok bool, err error) {
	q := db.dialect.statements.scout.with(s.Scope, s.SizeMs, db.at(fromMs), db.at(toMs), max)
	return db.when(ctx, "look for a window with room", q)
}

// Frontier implements slots.Tables.
func (db *DB) Frontier(ctx context.Context, s slots.Series, chunkMs int64) (endMs int64, ok bool, err error) {
	q := db.dialect.statements.frontier.with(s.Scope, s.SizeMs, db.at(chunkMs))
	return db.when(ctx, "read the frontier", q)
}

// when runs a query for one instant, which may be NULL.
func (db *DB) when(ctx context.Context, op string, q query) (ms int64, ok bool, err error) {
	var us int64
	var null bool
	ok, err = db.row(ctx, db.pools.read, op, q, instant{us: &us, null: &null, read: db.dialect.micros})
	return millis(us), ok && !null, err
}

// Provision implements slots.Tables. Each statement is a transaction of its own:
// what it leaves behind if the next one fails are empty windows, which harm
// nobody.
func (db *DB) Provision(ctx context.Context, s slots.Series, fromMs, toMs int64, frontier *slots.Frontier) (rows int64, err error) {
	missing := (toMs - fromMs + s.SizeMs - 1) / s.SizeMs
	for at := fromMs; missing > 0; missing -= provisionRows {
		q := db.dialect.statements.provision.with(s.Scope, s.SizeMs, db.at(at), min(missing, provisionRows))
		made, err := db.change(ctx, db.pools.write, "provision windows", q)
		if err != nil {
			return rows, err
		}
		rows += made
		at += provisionRows * s.SizeMs
	}
	if frontier != nil {
		q := db.dialect.statements.addFrontier.with(s.Scope, s.SizeMs, db.at(frontier.ChunkMs), db.at(frontier.EndMs))
		_, err = db.change(ctx, db.pools.write, "add a frontier", q)
	}
	return rows, err
}

// Begin implements slots.Tables.
func (db *DB) Begin(ctx context.Context) (slots.Tx, error) {
	const op = "begin a transaction"
	if db.dialect.pipeline != nil {
		conn, err := db.pools.write.Conn(ctx)
		if err != nil {
			return nil, db.fail(ctx, op, err)
		}
		return &pipelined{db: db, conn: conn}, nil
	}
	t, err := db.pools.write.BeginTx(ctx, nil)
	if err != nil {
		return nil, db.fail(ctx, op, err)
	}
	return &tx{db, t}, nil
}

// tx implements slots.Tx.
type tx struct {
	db *DB
	tx *sql.Tx
}

// Lock implements slots.Tx.
func (t *tx) Lock(ctx context.Context, s slots.Series, windowMs, max int64) (count int64, ok bool, err error) {
	q := t.db.dialect.statements.lock.with(s.Scope, s.SizeMs, t.db.at(windowMs), max)
	ok, err = t.db.row(ctx, t.tx, "lock a window", q, &count)
	return count, ok, err
}

// Claim implements slots.Tx.
func (t *tx) Claim(ctx context.Context, s slots.Series, windowMs int64, claimed []slots.Slot) error {
	err := t.db.claim(ctx, t.tx, s, windowMs, claimed)
	if err != nil {
		t.Rollback()
	}
	return err
}

// claim runs the statements of a claim.
func (db *DB) claim(ctx context.Context, on runner, s slots.Series, windowMs int64, claimed []slots.Slot) error {
	for some := range slices.Chunk(claimed, slots.MaxBatch) {
		for _, q := range db.dialect.claim(s, windowMs, some) {
			if _, err := db.change(ctx, on, "claim a slot", q); err != nil {
				return err
			}
		}
	}
	return nil
}

// Commit implements slots.Tx.
func (t *tx) Commit(ctx context.Context) error {
	return t.db.fail(ctx, "commit a slot", t.tx.Commit())
}

// Rollback implements slots.Tx. A transaction that cannot be rolled back has lost its
// connection, and the database ends it.
func (t *tx) Rollback() { _ = t.tx.Rollback() }
