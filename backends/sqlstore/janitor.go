package sqlstore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/sqldb"
)

// The janitor walks through the table by its primary key and deletes what has ended. An index by the
// end would be written with each decision. Every replica walks: they pass over what another has
// locked, and a row that is gone is as good as an unused key, so that they need no leader.
const (
	pageRows  = 1000                   // that one step looks at
	dropRows  = 100                    // that one transaction deletes
	stepPause = 100 * time.Millisecond // between steps
	stepTime  = 5 * time.Second        // that one step may take
	endedFor  = time.Minute            // before a row goes: callers' clocks may differ from the database's
)

// sweep walks repeatedly, until ctx ends.
func (b *Backend) sweep(ctx context.Context) {
	pause := rand.N(b.conf.Sweep) // replicas that start together do not walk together
	for after := []byte(nil); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = stepPause
		next, _, err := b.sweepPage(ctx, after, endedFor)
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
func (b *Backend) sweepPage(ctx context.Context, after []byte, before time.Duration) (last []byte, dropped int, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	const op = "look for expired rows"
	var ended [][]byte
	var edge int64
	rows := 0
	d := b.conf.dialect
	if after == nil {
		after = []byte{0} // before all keys, and not empty, which is NULL in Oracle
	}
	err = b.eachRow(ctx, op, d.page(after, pageRows), func(scan func(...any) error) error {
		var key []byte
		var ends, now int64
		if err := scan(&key, &ends, &now); err != nil {
			return err
		}
		rows, last = rows+1, key
		if edge = now - before.Microseconds(); ends < edge {
			ended = append(ended, key)
		}
		return nil
	})
	if rows < pageRows {
		last = nil
	}
	for some := range slices.Chunk(ended, dropRows) {
		if err != nil {
			break
		}
		var n int
		n, err = b.dropExpired(ctx, some, edge)
		dropped += n
	}
	b.swept.Add(int64(dropped))
	return last, dropped, err
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
	err = tx.Read(ctx, op, nil, []sqldb.Query{d.expired(keys, edge)}, func(_ int, scan func(...any) error) error {
		var key []byte
		err := scan(&key)
		ours = append(ours, key)
		return err
	})
	if err != nil || len(ours) == 0 {
		return 0, err
	}
	slices.SortFunc(ours, bytes.Compare)
	return len(ours), tx.Commit(ctx, op, d.drop(ours)...)
}
