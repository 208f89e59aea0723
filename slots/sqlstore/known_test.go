package sqlstore

import (
	"fmt"
	"testing"

	"github.com/headgate-rls/headgate/slots"
)

// A window that is known to have a row is locked without making it, which saves a statement. If
// the row is gone, or of an epoch that is over, it is made all the same and counts its slots.
func TestKnownWindows(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		n := 0
		place := func(want int64) {
			t.Helper()
			tx, err := db.Begin(soon(t), "")
			check(t, err)
			defer tx.Rollback()
			count, ok, err := tx.Lock(soon(t), series, 0, 10)
			if err != nil || !ok || count != want {
				t.Fatalf("lock: %d, %v, %v; want a count of %d", count, ok, err, want)
			}
			check(t, tx.Claim(soon(t), series, 0, []slots.Slot{slotOf(n, 0)}))
			check(t, tx.Commit(soon(t)))
			n++
		}
		place(0)
		if _, known := db.known.count(slots.WindowKey{Series: series}); !known {
			t.Fatal("a window that was locked is not known")
		}
		place(1)
		mustExec(t, db.sql.Write, "DELETE FROM RL_WNDW_CT")
		place(2)
		mustExec(t, db.sql.Write, fmt.Sprintf("INSERT INTO RL_WNDW_EPOCH (WNDW_SCOPE_NM, WNDW_SIZE_MS, "+
			"EPOCH_CT) VALUES ('%s', %d, 7)", series.Scope, series.SizeMs),
			"UPDATE RL_WNDW_CT SET SLOT_CT = 0") // which an older epoch may count
		place(3)
		tx, err := db.Begin(soon(t), "")
		check(t, err)
		defer tx.Rollback()
		if _, ok, err := tx.Lock(soon(t), series, 0, 4); ok || err != nil {
			t.Errorf("a known window with 4 of 4: %v, %v", ok, err)
		}
	})
}

// However many windows are claimed, a process keeps so many in mind, and no more.
func TestKnownWindowsAreBounded(t *testing.T) {
	var k knownWindows
	for i := range int64(2 * knownMost) {
		k.set(slots.WindowKey{Series: series, StartMs: i}, i)
	}
	count, known := k.count(slots.WindowKey{Series: series, StartMs: 2*knownMost - 1})
	if len(k.all) != knownMost || !known || count != 2*knownMost-1 {
		t.Errorf("%d windows are kept, want %d with the last", len(k.all), knownMost)
	}
}
