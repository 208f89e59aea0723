package sqlstore

import (
	"database/sql"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// Runs of full windows go with the windows, also where slots are kept for ever.
func TestRunsThatAreOverAreDropped(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		ctx, s := soon(t), slots.Series{Scope: "runs", SizeMs: 4000}
		generation, err := db.Generation(ctx)
		check(t, err)
		for _, full := range []slots.Span{{FromMs: 0, ToMs: 40_000}, {FromMs: 80_000, ToMs: 400_000}} {
			check(t, db.NoteFull(ctx, s, 5, full, generation))
		}
		_, err = db.PurgeWindows(ctx, 100_000, time.Now().UnixMicro(), 10)
		check(t, err)
		if end, ok, err := db.runEnd(ctx, s, 5, 4000); ok || err != nil {
			t.Errorf("a run that was over before the purge ends at %d; %v", end, err)
		}
		if end, ok, err := db.runEnd(ctx, s, 5, 120_000); !ok || end != 400_000 || err != nil {
			t.Errorf("a run that is not over ends at %d, %v; %v", end, ok, err)
		}
	})
}

// Full windows that were seen before they lost slots are not noted after that: the note waits for what shrinks them.
func TestFullWindowsAreNotNotedWhileTheyShrink(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		db := migrated(t, url)
		ctx, s := soon(t), slots.Series{Scope: "runs", SizeMs: 4000}
		generation, err := db.Generation(ctx)
		check(t, err)
		noted := make(chan error, 1)
		check(t, db.shrink(ctx, "shrink windows", func(*sql.Tx) (bool, error) {
			go func() { noted <- db.NoteFull(ctx, s, 5, slots.Span{FromMs: 0, ToMs: 40_000}, generation) }()
			select {
			case err := <-noted:
				noted <- err
				t.Errorf("full windows were noted meanwhile: %v", err)
			case <-time.After(300 * time.Millisecond):
			}
			return true, nil
		}))
		check(t, <-noted)
		if end, ok, err := db.runEnd(ctx, s, 5, 4000); ok || err != nil {
			t.Errorf("windows are full until %d that have room; %v", end, err)
		}
	})
}
