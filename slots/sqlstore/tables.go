package sqlstore

import (
	"context"
	"database/sql"
	"errors"
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

// How many windows Scout reads: a few at first, since what is noted saves the rest, and
// more and more after that.
const (
	scoutFirst = 100
	scoutMost  = 10_000
)

// Scout implements slots.Tables. It jumps over what is noted to be full, and reads
// windows from there on.
func (db *DB) Scout(ctx context.Context, s slots.Series, fromMs, toMs, max int64) (windowMs int64, ok bool, err error) {
	at, read := fromMs, scoutFirst
	for at < toMs {
		end, ok, err := db.runEnd(ctx, s, max, at)
		if err != nil {
			return 0, false, err
		}
		if ok && end > at {
			at, read = end, scoutFirst
			continue
		}
		windows, err := db.Windows(ctx, s, at, toMs, read)
		if err != nil {
			return 0, false, err
		}
		for _, w := range windows {
			if w.StartMs != at || w.Count < max {
				return at, true, nil
			}
			at += s.SizeMs
		}
		if len(windows) < read {
			break // those that follow have no rows
		}
		read = min(read*4, scoutMost)
	}
	return min(at, toMs), at < toMs, nil
}

// runEnd returns the end of the run that fromMs may lie in.
func (db *DB) runEnd(ctx context.Context, s slots.Series, max, fromMs int64) (endMs int64, ok bool, err error) {
	return db.when(ctx, "look for full windows", db.dialect.statements.run.with(s.Scope, s.SizeMs, max, db.at(fromMs)))
}

// NoteFull implements slots.Store.
func (db *DB) NoteFull(ctx context.Context, s slots.Series, max int64, full slots.Span, generation int64) error {
	const op = "note full windows"
	st := &db.dialect.statements
	return db.transact(ctx, op, func(tx *sql.Tx) error {
		var now int64
		if _, err := db.row(ctx, tx, op, st.lockGeneration.with(), &now); err != nil || now != generation {
			return err // what was seen may not be so any more
		}
		args := []any{s.Scope, s.SizeMs, max, db.at(full.FromMs), db.at(full.ToMs)}
		var fromUs, toUs int64
		var none bool
		_, err := db.row(ctx, tx, op, st.overlaps.with(args...),
			instant{us: &fromUs, null: &none, read: db.dialect.micros}, instant{us: &toUs, null: &none, read: db.dialect.micros})
		if err != nil {
			return err
		}
		if !none {
			from, to := min(millis(fromUs), full.FromMs), millis(toUs)
			if to < full.ToMs {
				to = full.ToMs
			}
			if _, err := db.change(ctx, tx, op, st.dropOverlap.with(args...)); err != nil {
				return err
			}
			args[3], args[4] = db.at(from), db.at(to)
		}
		_, err = db.change(ctx, tx, op, st.addRun.with(args...))
		return err
	})
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
func (db *DB) Begin(ctx context.Context, configID string) (slots.Tx, error) {
	const op = "begin a transaction"
	if db.dialect.pipeline != nil {
		conn, err := db.pools.write.Conn(ctx)
		if err != nil {
			return nil, db.fail(ctx, op, err)
		}
		return &pipelined{db: db, configID: configID, conn: conn}, nil
	}
	t, err := db.pools.write.BeginTx(ctx, nil)
	if err != nil {
		return nil, db.fail(ctx, op, err)
	}
	return &tx{db, configID, t}, nil
}

// tx implements slots.Tx.
type tx struct {
	db       *DB
	configID string
	tx       *sql.Tx
}

// Lock implements slots.Tx.
func (t *tx) Lock(ctx context.Context, s slots.Series, windowMs, max int64) (count int64, ok bool, err error) {
	return t.db.lock(ctx, t.tx, t.configID, s, windowMs, max)
}

// lock runs the statements of a lock one by one.
func (db *DB) lock(ctx context.Context, on runner, configID string, s slots.Series, windowMs, max int64) (count int64, ok bool, err error) {
	const op = "lock a window"
	before, lock := db.lockQueries(configID, s, windowMs, max)
	for _, q := range before {
		if _, err := db.change(ctx, on, op, q); err != nil {
			return 0, false, err
		}
	}
	var active sql.NullInt64
	ok, err = db.row(ctx, on, op, lock, &count, &active)
	return count, ok, db.locked(ctx, op, active, err)
}

// lockQueries are the statements of a lock: what comes before, and the lock itself.
func (db *DB) lockQueries(configID string, s slots.Series, windowMs, max int64) (before []query, lock query) {
	st := &db.dialect.statements
	if configID != "" && st.gate.text != "" {
		before = append(before, st.gate.with(configID))
	}
	if db.dialect.boundedWait != "" {
		before = append(before, query{text: db.dialect.boundedWait})
	}
	start := db.at(windowMs)
	before = append(before, st.make.with(s.Scope, s.SizeMs, start, db.at(windowMs+s.SizeMs)))
	return before, st.lock.with(s.Scope, s.SizeMs, start, max, configID)
}

// locked makes of a lock's outcome the error that it is if the version of the config is
// superseded.
func (db *DB) locked(ctx context.Context, op string, active sql.NullInt64, err error) error {
	if err == nil && active.Valid && active.Int64 == 0 {
		return &slots.StoreError{Kind: slots.Superseded, Op: op, Err: errors.New("the config has another version now")}
	}
	return db.fail(ctx, op, err)
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
