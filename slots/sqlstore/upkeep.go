package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// SlotsSince implements slots.Store.
func (db *DB) SlotsSince(ctx context.Context, after slots.Position, limit int) ([]slots.Slot, error) {
	created := db.dialect.instant(after.CreatedUs)
	return db.slots(ctx, "list slots", db.dialect.statements.since.with(created, created, after.ID, limit))
}

// Windows implements slots.Store.
func (db *DB) Windows(ctx context.Context, s slots.Series, fromMs, toMs int64, limit int) (windows []slots.Window, err error) {
	q := db.dialect.statements.windows.with(s.Scope, s.SizeMs, db.at(fromMs), db.at(toMs), limit)
	err = db.rows(ctx, db.pools.read, "list windows", q, func(rows *sql.Rows) error {
		var us, count int64
		err := rows.Scan(db.into(&us), &count)
		windows = append(windows, slots.Window{StartMs: millis(us), Count: count})
		return err
	})
	return windows, err
}

// leadPrefix begins the names of the rows of RL_SLOT_CTL that leaders hold.
const leadPrefix = "lead:"

// Lead implements slots.Store.
func (db *DB) Lead(ctx context.Context, work, holder string, ttl time.Duration) (bool, error) {
	const op = "become the leader"
	s := &db.dialect.statements
	name := leadPrefix + work
	lead := s.lead.with(holder, ttl.Microseconds(), name, holder)
	n, err := db.change(ctx, db.pools.write, op, lead)
	if n > 0 || err != nil {
		return n > 0, err
	}
	made, err := db.change(ctx, db.pools.write, op, s.addLeader.with(name))
	if made == 0 || err != nil {
		return false, err // another leads
	}
	n, err = db.change(ctx, db.pools.write, op, lead)
	return n > 0, err
}

// PurgeWindows implements slots.Store. First go the frontiers of the chunks whose
// first window ended, all of them, also those that reach further: a frontier
// would hide that windows before it are missing.
func (db *DB) PurgeWindows(ctx context.Context, endedMs, madeUs int64, limit int) (int64, error) {
	s := &db.dialect.statements
	ended, made := db.at(endedMs), db.dialect.instant(madeUs)
	frontiers, err := db.change(ctx, db.pools.write, "purge frontiers", s.purgeFrontiers.with(ended, made, limit))
	if err != nil || frontiers >= int64(limit) {
		return frontiers, err // there may be more
	}
	var windows int64
	if db.dialect.purgeWindows != nil {
		windows, err = db.dialect.purgeWindows(ctx, db, ended, made, limit)
	} else {
		windows, err = db.change(ctx, db.pools.write, "purge windows", s.purgeWindows.with(ended, made, limit))
	}
	return frontiers + windows, err
}

// PurgeSlots implements slots.Store.
func (db *DB) PurgeSlots(ctx context.Context, beforeUs int64, limit int) (int64, error) {
	return db.change(ctx, db.pools.write, "purge slots", db.dialect.statements.purgeSlots.with(db.dialect.instant(beforeUs), limit))
}

// Drift implements slots.Store.
func (db *DB) Drift(ctx context.Context, fromMs, toMs int64, after *slots.WindowKey, limit int, repair bool) (drifts []slots.Drift, next *slots.WindowKey, err error) {
	keys, err := db.keys(ctx, fromMs, toMs, after, limit)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		d, ok, err := db.compare(ctx, key)
		if err == nil && ok && d.Count != d.Slots && repair {
			d, ok, err = db.repair(ctx, key)
		}
		if err != nil {
			return drifts, nil, err
		}
		if ok && d.Count != d.Slots {
			drifts = append(drifts, d)
		}
	}
	if len(keys) == limit && limit > 0 {
		next = &keys[limit-1]
	}
	return drifts, next, nil
}

// keys lists windows.
func (db *DB) keys(ctx context.Context, fromMs, toMs int64, after *slots.WindowKey, limit int) (keys []slots.WindowKey, err error) {
	if after == nil {
		after = &slots.WindowKey{}
	}
	q := db.dialect.statements.keys.with(db.at(fromMs), db.at(toMs), after.Scope, after.SizeMs, db.at(after.StartMs), limit)
	err = db.rows(ctx, db.pools.read, "list windows", q, func(rows *sql.Rows) error {
		var k slots.WindowKey
		var us int64
		err := rows.Scan(&k.Scope, &k.SizeMs, db.into(&us))
		k.StartMs = millis(us)
		keys = append(keys, k)
		return err
	})
	return keys, err
}

// compare reads a counter and counts its slots, as of one moment; ok=false if the window
// is gone.
func (db *DB) compare(ctx context.Context, k slots.WindowKey) (d slots.Drift, ok bool, err error) {
	d.WindowKey = k
	q := db.dialect.statements.compare.with(k.Scope, k.SizeMs, db.at(k.StartMs), db.at(k.StartMs+k.SizeMs))
	ok, err = db.row(ctx, db.pools.read, "compare a window with its slots", q, &d.Count, &d.Slots)
	return d, ok, err
}

// repair sets a counter to the number of its slots, while nobody else can
// claim any.
func (db *DB) repair(ctx context.Context, k slots.WindowKey) (d slots.Drift, ok bool, err error) {
	const op = "repair a window"
	s := &db.dialect.statements
	d = slots.Drift{WindowKey: k}
	start := db.at(k.StartMs)
	err = db.transact(ctx, op, func(tx *sql.Tx) error {
		ok, err = db.row(ctx, tx, op, s.lockWait.with(k.Scope, k.SizeMs, start), &d.Count)
		if !ok || err != nil {
			return err
		}
		if _, err := db.row(ctx, tx, op, s.count.with(k.Scope, start, db.at(k.StartMs+k.SizeMs)), &d.Slots); err != nil {
			return err
		}
		if d.Count == d.Slots {
			return nil
		}
		set := s.setCount.with(d.Slots, k.Scope, k.SizeMs, start)
		set.rows = 1
		_, err := db.change(ctx, tx, op, set)
		return err
	})
	d.Repaired = err == nil && d.Count != d.Slots
	return d, ok, err
}
