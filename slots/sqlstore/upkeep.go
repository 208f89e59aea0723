package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// SlotsSince implements slots.Store.
func (db *DB) SlotsSince(ctx context.Context, after slots.Position, limit int) ([]slots.Slot, error) {
	created := db.dialect.Instant(after.CreatedUs)
	return db.slots(ctx, "list slots", db.dialect.statements.since.with(created, created, after.ID, limit))
}

// leadPrefix begins the names of the rows of RL_SLOT_CTL that leaders hold.
const leadPrefix = "lead:"

// Lead implements slots.Store.
func (db *DB) Lead(ctx context.Context, work, holder string, ttl time.Duration) (bool, error) {
	const op = "become the leader"
	s := &db.dialect.statements
	name := leadPrefix + work
	lead := s.lead.with(holder, ttl.Milliseconds(), name, holder)
	n, err := db.sql.Change(ctx, db.sql.Write, op, lead)
	if n > 0 || err != nil {
		return n > 0, err
	}
	made, err := db.sql.Change(ctx, db.sql.Write, op, s.addLeader.with(name))
	if made == 0 || err != nil {
		return false, err // another leads
	}
	n, err = db.sql.Change(ctx, db.sql.Write, op, lead)
	return n > 0, err
}

// Now implements slots.Store.
func (db *DB) Now(ctx context.Context) (us int64, err error) {
	_, err = db.sql.Row(ctx, db.sql.Read, "read the clock", db.dialect.statements.clock.with(), db.into(&us))
	return us, err
}

// PurgeWindows implements slots.Store. First go the frontiers of the chunks whose
// first window ended, all of them, also those that reach further: a frontier
// would hide that windows before it are missing. What is noted of full windows goes with
// them: to ask for these again costs reading. Rows that other sessions hold stay for the next
// purge; Oracle waits for them.
func (db *DB) PurgeWindows(ctx context.Context, endedMs, madeUs int64, limit int) (int64, error) {
	s := &db.dialect.statements
	ended, made := db.at(endedMs), db.dialect.Instant(madeUs)
	frontiers, err := db.sql.Change(ctx, db.sql.Write, "purge frontiers", s.purgeFrontiers.with(ended, made, limit))
	if err != nil || frontiers >= int64(limit) {
		return frontiers, err // there may be more
	}
	if _, err := db.sql.Change(ctx, db.sql.Write, "purge runs of full windows", s.purgeRuns.with(ended)); err != nil {
		return frontiers, err
	}
	windows, err := db.sql.Change(ctx, db.sql.Write, "purge windows", s.purgeWindows.with(ended, made, limit))
	return frontiers + windows, err
}

// PurgeSlots implements slots.Store. Windows whose slots are gone have room, whatever is
// noted of them. It waits for no lock for long, since changes of configs wait for it.
func (db *DB) PurgeSlots(ctx context.Context, beforeUs int64, limit int) (n int64, err error) {
	const op = "purge slots"
	s := &db.dialect.statements
	before := db.dialect.Instant(beforeUs)
	err = db.shrink(ctx, op, func(tx *sql.Tx) (bool, error) {
		if db.dialect.boundedWait != "" {
			if _, err := db.sql.Change(ctx, tx, op, query{Text: db.dialect.boundedWait}); err != nil {
				return false, err
			}
		}
		runs, err := db.sql.Change(ctx, tx, op, s.dropOldRuns.with(before))
		if err != nil {
			return false, err
		}
		n, err = db.sql.Change(ctx, tx, op, s.purgeSlots.with(before, limit))
		return n > 0 || runs > 0, err
	})
	return n, err
}

// shrink runs f, which reports whether windows have more room than before, in a transaction
// of its own. It adds to the generation then: nobody must note again what was seen before.
func (db *DB) shrink(ctx context.Context, op string, f func(*sql.Tx) (bool, error)) error {
	s := &db.dialect.statements
	return db.sql.Transact(ctx, op, func(tx *sql.Tx) error {
		var generation int64
		if _, err := db.sql.Row(ctx, tx, op, s.lockGeneration.with(), &generation); err != nil {
			return err
		}
		shrunk, err := f(tx)
		if shrunk && err == nil {
			_, err = db.sql.Change(ctx, tx, op, s.bump.with())
		}
		return err
	})
}

// Drift implements slots.Store. Windows of sizes that are not in use do not count what is
// assigned meanwhile, and are counted again when they are.
func (db *DB) Drift(ctx context.Context, fromMs, toMs int64, after *slots.WindowKey, limit int,
	repair bool) (drifts []slots.Drift, next *slots.WindowKey, err error) {
	used, err := db.seriesInUse(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range used {
		from := fromMs
		if after != nil {
			switch order := compareSeries(s, after.Series); {
			case order < 0:
				continue
			case order == 0:
				from = max(fromMs, after.StartMs+1)
			}
		}
		some, looked, last, err := db.driftOf(ctx, s, from, toMs, limit)
		if err != nil {
			return drifts, nil, err
		}
		for _, d := range some {
			ok := true
			if repair {
				if d, ok, err = db.repair(ctx, d.WindowKey); err != nil {
					return drifts, nil, err
				}
			}
			if ok && d.Count != d.Slots {
				drifts = append(drifts, d)
			}
		}
		if limit -= looked; limit <= 0 {
			return drifts, &last, nil
		}
	}
	return drifts, nil, nil
}

// driftOf compares windows of one series. last is the last one that was looked at.
func (db *DB) driftOf(ctx context.Context, s slots.Series, fromMs, toMs int64,
	limit int) (drifts []slots.Drift, looked int, last slots.WindowKey, err error) {
	q := db.dialect.statements.drift.with(s.Scope, s.SizeMs, db.at(fromMs), db.at(toMs), limit)
	err = db.sql.Rows(ctx, db.sql.Read, "compare windows with their slots", q, func(rows *sql.Rows) error {
		var us int64
		d := slots.Drift{WindowKey: slots.WindowKey{Series: s}}
		err := rows.Scan(db.into(&us), &d.Count, &d.Slots)
		d.StartMs = millis(us)
		looked, last = looked+1, d.WindowKey
		if d.Count != d.Slots {
			drifts = append(drifts, d)
		}
		return err
	})
	return drifts, looked, last, err
}

// seriesInUse are those of the active configs, in order.
func (db *DB) seriesInUse(ctx context.Context) ([]slots.Series, error) {
	scope, _, err := db.control(ctx, controlScope)
	if err != nil {
		return nil, err
	}
	configs, _, err := db.readableConfigs(ctx, db.sql.Read, "read the configs",
		db.dialect.statements.activeConfigs.with(manyConfigs))
	if err != nil {
		return nil, err
	}
	var used []slots.Series
	for _, c := range configs {
		used = append(used, slots.SeriesOf(c, scope == slots.ScopeShared))
	}
	slices.SortFunc(used, compareSeries)
	return slices.Compact(used), nil
}

func compareSeries(a, b slots.Series) int {
	return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.SizeMs, b.SizeMs))
}

// repair sets a counter to the number of its slots, while nobody else can
// claim any.
func (db *DB) repair(ctx context.Context, k slots.WindowKey) (d slots.Drift, ok bool, err error) {
	const op = "repair a window"
	s := &db.dialect.statements
	d = slots.Drift{WindowKey: k}
	start := db.at(k.StartMs)
	err = db.shrink(ctx, op, func(tx *sql.Tx) (bool, error) {
		ok, err = db.sql.Row(ctx, tx, op, s.lockWait.with(k.Scope, k.SizeMs, start), &d.Count)
		if !ok || err != nil {
			return false, err
		}
		if _, err := db.sql.Row(ctx, tx, op, s.count.with(k.Scope, start, db.at(k.StartMs+k.SizeMs)), &d.Slots); err != nil {
			return false, err
		}
		if d.Count == d.Slots {
			return false, nil
		}
		if _, err := db.sql.Change(ctx, tx, op, s.dropRuns.with(k.Scope, k.SizeMs)); err != nil {
			return false, err
		}
		set := s.setCount.with(d.Slots, k.Scope, k.SizeMs, start)
		set.Rows = 1
		_, err := db.sql.Change(ctx, tx, op, set)
		return true, err
	})
	d.Repaired = err == nil && d.Count != d.Slots
	return d, ok, err
}
