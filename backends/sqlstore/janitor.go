package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// The janitor walks through the table by its primary key and deletes what has ended. An index by the
// end would be written with each decision. Every replica walks: they pass over what another has
// locked, and a row that is gone is as good as an unused key, so that they need no leader.
const (
	pageRows  = 1000                   // that one step looks at
	dropRows  = 100                    // that one transaction deletes
	dropParts = 1000                   // of logs that it deletes, unless one log has more
	stepPause = 100 * time.Millisecond // between steps
	stepTime  = 5 * time.Second        // that one step may take
	endedFor  = time.Minute            // before a row goes: callers' clocks may differ from the database's
)

// sweep walks repeatedly, until ctx ends.
func (b *Backend) sweep(ctx context.Context) {
	pause := rand.N(b.conf.Sweep) // replicas that start together do not walk together
	for after := []byte(nil); background.Sleep(ctx, pause) == nil; {
		pause = stepPause
		next, err := b.sweepPage(ctx, after, endedFor)
		if after = next; after == nil || err != nil {
			pause = b.conf.Sweep*3/4 + rand.N(b.conf.Sweep/2)
		}
		if err != nil && ctx.Err() == nil {
			b.conf.Log.Warn("could not delete expired rows; retrying", "after", pause, "error", err)
		}
	}
}

// sweepPage deletes what had ended before for some time among the rows after a key, and returns the
// last key it has looked at, nil at the end of the table.
func (b *Backend) sweepPage(ctx context.Context, after []byte, before time.Duration) (last []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	const op = "look for expired rows"
	var ended []endedRow
	var edge int64
	rows := 0
	d := b.conf.dialect
	if after == nil {
		after = []byte{0} // before all keys, and not empty, which is NULL in Oracle
	}
	err = b.db.Rows(ctx, b.db.Read, op, d.page(after, pageRows), func(found *sql.Rows) error {
		var key []byte
		var ends, m, now int64
		if err := found.Scan(&key, &ends, &m, &now); err != nil {
			return err
		}
		rows, last = rows+1, key
		if edge = now - before.Microseconds(); ends < edge {
			ended = append(ended, endedRow{key, partsOfRow(key, m)})
		}
		return nil
	})
	if rows < pageRows {
		last = nil
	}
	for len(ended) > 0 && err == nil {
		var some [][]byte
		some, ended = droppedAtOnce(ended)
		var n int
		n, err = b.dropExpired(ctx, some, edge)
		b.swept.Add(int64(n))
	}
	return last, err
}

// An endedRow may go, with so many parts of a log.
type endedRow struct {
	key   []byte
	parts int64
}

// partsOfRow is how many parts a row has whose M says so: that of a log.
func partsOfRow(key []byte, m int64) int64 {
	if k, ok := keyOf(key); ok && strings.HasPrefix(k.Limit, limit.SlidingLog.KeyLetter()) {
		return m
	}
	return 0
}

// droppedAtOnce takes out the keys of the first rows, as many as one transaction deletes.
func droppedAtOnce(rows []endedRow) (keys [][]byte, rest []endedRow) {
	parts := int64(0)
	for i, r := range rows {
		if parts += r.parts; i == dropRows || i > 0 && parts > dropParts {
			return keys, rows[i:]
		}
		keys = append(keys, r.key)
	}
	return keys, nil
}

// dropExpired deletes those of the keys that still have ended, and that nobody is about to use.
func (b *Backend) dropExpired(ctx context.Context, keys [][]byte, edge int64) (int, error) {
	const op = "delete expired rows"
	tx, err := b.db.Begin(ctx, op)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	var ours [][]byte
	d := b.conf.dialect
	expired := d.expired(keys, edge)
	expired.Each = func(scan func(...any) error) error {
		var key []byte
		err := scan(&key)
		ours = append(ours, key)
		return err
	}
	_, err = tx.Run(ctx, op, expired)
	if err != nil || len(ours) == 0 {
		return 0, err
	}
	slices.SortFunc(ours, bytes.Compare)
	return len(ours), tx.Commit(ctx, op, d.drop(ours)...)
}
