package sqlstore

import (
	"context"
	"database/sql"
	"slices"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
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
func (db *DB) slots(ctx context.Context, op string, q query) ([]slots.Slot, error) {
	return sqldb.All(ctx, db.sql, db.sql.Read, op, q, db.scanSlot)
}

// scanSlot reads the columns slotColumns.
func (db *DB) scanSlot(row *sql.Rows) (slots.Slot, error) {
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
	ok, err = db.sql.Row(ctx, db.sql.Read, "read a window", q, &count)
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

// How many slots, and windows, a statement of Uncounted counts: few at first, since most
// calls find that there are none.
const (
	countFirst, countMost = 2_000, 200_000
	countWindows          = 50_000
)

// Uncounted implements slots.Tables. An error that comes late is left to the next statement, so
// that what was counted before is not lost.
func (db *DB) Uncounted(ctx context.Context, s slots.Series, fromMs, toMs, max int64) (endMs int64, err error) {
	at, more := fromMs, true
	for slotsAtOnce := int64(countFirst); more && at < toMs; slotsAtOnce = min(slotsAtOnce*10, countMost) {
		// A window that is full has max slots or more.
		to := min(toMs, at+min(slotsAtOnce/max+1, countWindows)*s.SizeMs)
		at, more, err = db.uncounted(ctx, s, at, to, max)
		if err != nil && at == fromMs {
			return at, err
		}
		more = more && err == nil
	}
	return min(at, toMs), nil
}

// uncounted is Uncounted in one statement; more: all windows are full.
func (db *DB) uncounted(ctx context.Context, s slots.Series, fromMs, toMs,
	max int64) (endMs int64, more bool, err error) {
	at := fromMs
	row, err := db.Windows(ctx, s, at, toMs, 1)
	if err != nil {
		return at, false, err
	}
	if len(row) > 0 {
		toMs = row[0].StartMs
	}
	counts, err := db.Scheduled(ctx, s, at, toMs)
	if err != nil {
		return at, false, err
	}
	for _, w := range counts {
		if w.StartMs != at || w.Count < max {
			return at, false, nil
		}
		at += s.SizeMs
	}
	return at, at >= toMs && len(row) == 0, nil
}

// Windows implements slots.Store.
func (db *DB) Windows(ctx context.Context, s slots.Series, fromMs, toMs int64,
	limit int) ([]slots.Window, error) {
	q := db.dialect.statements.windows.with(s.Scope, s.SizeMs, db.at(fromMs), db.at(toMs), limit)
	return sqldb.All(ctx, db.sql, db.sql.Read, "list windows", q, func(rows *sql.Rows) (slots.Window, error) {
		var us, count int64
		err := rows.Scan(db.into(&us), &count)
		return slots.Window{StartMs: millis(us), Count: count}, err
	})
}

// Scheduled implements slots.Store.
func (db *DB) Scheduled(ctx context.Context, s slots.Series, fromMs, toMs int64) ([]slots.Window, error) {
	q := db.dialect.statements.scheduled.with(s.Scope, s.SizeMs, db.at(fromMs), db.at(toMs))
	return sqldb.All(ctx, db.sql, db.sql.Read, "count slots", q, func(rows *sql.Rows) (slots.Window, error) {
		var n, count int64
		err := rows.Scan(&n, &count)
		return slots.Window{StartMs: fromMs + n*s.SizeMs, Count: count}, err
	})
}

// runEnd returns the end of the run that fromMs may lie in.
func (db *DB) runEnd(ctx context.Context, s slots.Series, max, fromMs int64) (endMs int64, ok bool, err error) {
	return db.when(ctx, "look for full windows", db.dialect.statements.run.with(s.Scope, s.SizeMs, max, db.at(fromMs)))
}

// NoteFull implements slots.Store.
func (db *DB) NoteFull(ctx context.Context, s slots.Series, most int64, full slots.Span, generation int64) error {
	const op = "note full windows"
	st := &db.dialect.statements
	return db.sql.Transact(ctx, op, func(tx *sql.Tx) error {
		var now int64
		if _, err := db.sql.Row(ctx, tx, op, st.lockGeneration.with(), &now); err != nil || now != generation {
			return err // what was seen may not be so any more
		}
		args := []any{s.Scope, s.SizeMs, most, db.at(full.FromMs), db.at(full.ToMs)}
		var fromUs, toUs int64
		var none bool
		_, err := db.sql.Row(ctx, tx, op, st.overlaps.with(args...),
			db.dialect.IntoNull(&fromUs, &none), db.dialect.IntoNull(&toUs, &none))
		if err != nil {
			return err
		}
		if !none {
			if _, err := db.sql.Change(ctx, tx, op, st.dropOverlap.with(args...)); err != nil {
				return err
			}
			args[3], args[4] = db.at(min(millis(fromUs), full.FromMs)), db.at(max(millis(toUs), full.ToMs))
		}
		_, err = db.sql.Change(ctx, tx, op, st.addRun.with(args...))
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
	ok, err = db.sql.Row(ctx, db.sql.Read, op, q, db.dialect.IntoNull(&us, &null))
	return millis(us), ok && !null, err
}

// Provision implements slots.Tables. Each statement is a transaction of its own: if the next one
// fails, empty windows stay, which changes no answer. It deletes rows of earlier epochs first, each
// by its key: a DELETE that searches for rows may wait for windows that are being claimed.
func (db *DB) Provision(ctx context.Context, s slots.Series, fromMs, toMs int64,
	frontier *slots.Frontier) (rows int64, err error) {
	if err := db.dropStale(ctx, s, fromMs, toMs); err != nil {
		return 0, err
	}
	missing := (toMs - fromMs + s.SizeMs - 1) / s.SizeMs
	for at := fromMs; missing > 0; missing -= provisionRows {
		q := db.dialect.statements.provision.with(s.Scope, s.SizeMs, db.at(at), min(missing, provisionRows))
		made, err := db.sql.Change(ctx, db.sql.Write, "provision windows", q)
		if err != nil {
			return rows, err
		}
		rows += made
		at += provisionRows * s.SizeMs
	}
	if frontier != nil {
		q := db.dialect.statements.addFrontier.with(s.Scope, s.SizeMs, db.at(frontier.ChunkMs), db.at(frontier.EndMs))
		_, err = db.sql.Change(ctx, db.sql.Write, "add a frontier", q)
	}
	return rows, err
}

// dropStale drops the windows of a stretch whose epoch is over.
func (db *DB) dropStale(ctx context.Context, s slots.Series, fromMs, toMs int64) error {
	const op = "drop windows of an earlier epoch"
	st := &db.dialect.statements
	stale, err := sqldb.All(ctx, db.sql, db.sql.Read, op, st.stale.with(s.Scope, s.SizeMs, db.at(fromMs), db.at(toMs)),
		func(rows *sql.Rows) (us int64, err error) {
			err = rows.Scan(db.into(&us))
			return us, err
		})
	for _, us := range stale {
		if err == nil {
			_, err = db.sql.Change(ctx, db.sql.Write, op, st.dropStale.with(s.Scope, s.SizeMs, db.dialect.Instant(us)))
		}
	}
	return err
}
