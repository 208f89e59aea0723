package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/testenv"
)

// countedPurges counts the purges of slots.
type countedPurges struct {
	*DB
	n atomic.Int64
}

func (c *countedPurges) PurgeSlots(ctx context.Context, beforeUs int64, limit int) (int64, error) {
	defer c.n.Add(1)
	return c.DB.PurgeSlots(ctx, beforeUs, limit)
}

// A process whose clock is days ahead drops no slots before their time: their events would get other ones.
func TestAPurgeByAClockThatIsAhead(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		now, err := db.Now(soon(t))
		check(t, err)
		if off := time.Since(time.UnixMicro(now)).Abs(); off > time.Minute {
			t.Errorf("the database's clock is %v off", off)
		}
		store := &countedPurges{DB: db}
		s, err := slots.NewScheduler(store, slots.Settings{KeepWindows: time.Hour, KeepSlots: time.Hour,
			Now: func() time.Time { return time.Now().Add(30 * 24 * time.Hour) }})
		check(t, err)
		_, err = s.PutConfig(soon(t), slots.NewConfig{Name: "c", Max: 1, SizeMs: 1000})
		check(t, err)
		r := slots.Request{EventID: "e", ConfigName: "c", At: time.Now().Add(24 * time.Hour)}
		first, err := s.Assign(soon(t), r)
		check(t, err)
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		defer running.Wait()
		defer end()
		testenv.Eventually(t, 10*time.Second, "slots are purged", func() string {
			if store.n.Load() == 0 {
				return "not yet"
			}
			return ""
		})
		if again, err := s.Assign(soon(t), r); err != nil || again.ID != first.ID {
			t.Errorf("asked again, the event gets %+v (%v), and had %+v", again, err, first)
		}
	})
}

// purgedTries is how often a search may be passed by because the machine is busy: it finds a
// window held that is purged for longer than a search waits.
const purgedTries = 5

// A purge may drop the row of a past window after a search has seen it and before the search
// locks it. The window is made again: it has room.
func TestAWindowThatIsPurgedBeforeItIsLockedIsNotPassedOver(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		db := migrated(t, url)
		for try := 0; ; try++ {
			found := purgedMeanwhile(t, db, slots.TxEngine(db), fmt.Sprint(try))
			if found.Contended > 0 && try < purgedTries {
				continue
			}
			if a := found.Answers[0]; a.Status != slots.New || a.Slot.WindowMs != 0 {
				t.Errorf("%+v; want window 0", found)
			}
			break
		}
	})
}

// purgedMeanwhile places an event into window 0 of the scope, whose row is deleted in a
// transaction that ends when the search waits for the row, or later.
func purgedMeanwhile(t *testing.T, db *DB, e slots.Engine, scope string) slots.Found {
	t.Helper()
	s := &slots.Search{
		Series: slots.Series{Scope: scope, SizeMs: 4000}, ConfigID: "c", Max: 5, FromMs: 4000, EndMs: 40_000,
		Asks: []slots.Ask{{EventID: "e-" + scope, SlotID: "s-" + scope, FirstMax: 5}},
	}
	_, err := db.Provision(soon(t), s.Series, 0, 4000, nil)
	check(t, err)
	purge, err := db.sql.Write.BeginTx(soon(t), nil)
	check(t, err)
	defer func() { _ = purge.Rollback() }()
	_, err = purge.ExecContext(soon(t), "DELETE FROM RL_WNDW_CT WHERE WNDW_SCOPE_NM = '"+scope+"'")
	check(t, err)
	type outcome struct {
		found slots.Found
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		found, err := e.Assign(soon(t), s)
		done <- outcome{found, err}
	}()
	time.Sleep(200 * time.Millisecond) // it waits by then, or will find the row gone
	check(t, purge.Commit())
	got := <-done
	check(t, got.err)
	return got.found
}

// The same in Oracle's package, which does not wait: the row goes when the package has made
// it, and before the package locks it.
func TestOraclePackagePassesOverNoWindowThatIsPurged(t *testing.T) {
	url := testenv.SharedDatabase(t, testenv.MariaDB).CreateDatabase("oracle")
	migrated(t, url)
	o := newOracleOnMariaDB(t, url)
	var held string
	for _, shim := range oracleShims {
		if strings.Contains(shim, "RL_CONFIG_HELD") {
			held = strings.Replace(shim, "  SELECT MAX",
				"  DELETE FROM RL_WNDW_CT WHERE WNDW_SCOPE_NM = 'purged' AND SLOT_CT = 0;\n  SELECT MAX", 1)
		}
	}
	mustExec(t, o.sessions, held)
	db := o.on(mustOpen(t, url))
	s := oracleSearch()
	s.Scope = "purged"
	_, err := db.Provision(soon(t), s.Series, s.FirstMs, s.FirstMs+s.SizeMs, nil)
	check(t, err)
	found, err := slots.ProcedureEngine(db.Procedure(), slots.TxEngine(db)).Assign(soon(t), s)
	check(t, err)
	if a := found.Answers[0]; a.Status != slots.New || a.Slot.WindowMs != s.FirstMs {
		t.Errorf("%+v; want the first window, %d", a, s.FirstMs)
	}
}

// While somebody holds a slot that is to be purged, configs can be changed, and the others are purged.
func TestAPurgeDoesNotWaitForASlotThatIsHeld(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		db := migrated(t, url)
		s, err := slots.NewScheduler(db, slots.Settings{})
		check(t, err)
		config := slots.NewConfig{Name: "c", Max: 5, SizeMs: 1000}
		_, err = s.PutConfig(soon(t), config)
		check(t, err)
		for _, id := range []string{"held", "other"} {
			_, err := s.Assign(soon(t), slots.Request{EventID: id, ConfigName: "c", At: time.Now()})
			check(t, err)
		}
		holder, err := mustOpen(t, url).sql.Write.BeginTx(soon(t), nil)
		check(t, err)
		defer func() { _ = holder.Rollback() }()
		_, err = holder.ExecContext(soon(t), "SELECT * FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = 'held' FOR UPDATE")
		check(t, err)
		type purged struct {
			n   int64
			err error
		}
		done := make(chan purged, 1)
		go func() {
			n, err := db.PurgeSlots(soon(t), time.Now().Add(time.Hour).UnixMicro(), 1000)
			done <- purged{n, err}
		}()
		time.Sleep(100 * time.Millisecond)
		if _, err := s.PutConfig(soon(t), config); err != nil {
			t.Errorf("a change of a config beside a purge: %v", err)
		}
		if p := <-done; p.n != 1 || p.err != nil {
			t.Errorf("%d slots were purged beside one that is held: %v", p.n, p.err)
		}
	})
}

// While somebody holds a frontier or a run of full windows that is to be purged, the others are purged, and so are the
// windows.
func TestAPurgePassesOverFrontiersAndRunsThatAreHeld(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		db := migrated(t, url)
		series := slots.Series{Scope: "purged", SizeMs: 1000}
		generation, err := db.Generation(soon(t))
		check(t, err)
		for from := int64(0); from < 10_000; from += 5000 {
			_, err := db.Provision(soon(t), series, from, from+5000, &slots.Frontier{ChunkMs: from, EndMs: from + 5000})
			check(t, err)
			check(t, db.NoteFull(soon(t), series, 5, slots.Span{FromMs: from, ToMs: from + 1000}, generation))
		}
		holder, err := mustOpen(t, url).sql.Write.BeginTx(soon(t), nil)
		check(t, err)
		defer func() { _ = holder.Rollback() }()
		zone := ""
		if db.dialect.Name == "postgres" {
			zone = "Z"
		}
		for _, row := range []string{"RL_WNDW_FRONTIER_TRK WHERE REQ_TS", "RL_WNDW_FULL_RUN WHERE RUN_STRT_TS"} {
			_, err = holder.ExecContext(soon(t), "SELECT * FROM "+row+" = '1970-01-01 00:00:05"+zone+"' FOR UPDATE")
			check(t, err)
		}
		n, err := db.PurgeWindows(soon(t), 20_000, time.Now().Add(time.Hour).UnixMicro(), 1000)
		if n != 11 || err != nil {
			t.Errorf("%d rows of 10 windows and 2 frontiers were purged beside a frontier that is held: %v", n, err)
		}
		var runs int
		check(t, db.sql.Read.QueryRowContext(soon(t), "SELECT COUNT(*) FROM RL_WNDW_FULL_RUN").Scan(&runs))
		if runs != 1 {
			t.Errorf("%d of 2 runs of full windows are left beside one that is held", runs)
		}
	})
}

// While somebody holds a window that is to be purged, the others are purged.
func TestAPurgePassesOverAWindowThatIsHeld(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		db := migrated(t, url)
		series := slots.Series{Scope: "purged", SizeMs: 1000}
		_, err := db.Provision(soon(t), series, 0, 10_000, nil)
		check(t, err)
		holder, err := mustOpen(t, url).sql.Write.BeginTx(soon(t), nil)
		check(t, err)
		defer func() { _ = holder.Rollback() }()
		held := db.dialect.statements.lockWait.with(series.Scope, series.SizeMs, db.at(3000))
		_, err = holder.ExecContext(soon(t), held.Text, held.Args...)
		check(t, err)
		n, err := db.PurgeWindows(soon(t), 20_000, time.Now().Add(time.Hour).UnixMicro(), 1000)
		if n != 9 || err != nil {
			t.Errorf("%d of 10 windows were purged beside one that is held: %v", n, err)
		}
	})
}

// A purge locks no window that it leaves, so claims in it do not wait.
func TestAPurgeLocksNoWindowThatItLeaves(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		db := migrated(t, url)
		series := slots.Series{Scope: "purged", SizeMs: 1000}
		_, err := db.Provision(soon(t), series, 0, 10_000, nil)
		check(t, err)
		purging, err := db.sql.Write.BeginTx(soon(t), nil)
		check(t, err)
		defer func() { _ = purging.Rollback() }()
		purge := db.dialect.statements.purgeWindows.with(db.at(5000), db.at(time.Now().Add(time.Hour).UnixMilli()), 1000)
		result, err := purging.ExecContext(soon(t), purge.Text, purge.Args...)
		check(t, err)
		if n, err := result.RowsAffected(); n != 5 || err != nil {
			t.Fatalf("%d of 5 windows were purged: %v", n, err)
		}
		rows, err := mustOpen(t, url).sql.Write.QueryContext(soon(t), "SELECT SLOT_CT FROM RL_WNDW_CT FOR UPDATE SKIP LOCKED")
		check(t, err)
		defer rows.Close()
		left := 0
		for ; rows.Next(); left++ {
		}
		check(t, rows.Err())
		if left != 5 {
			t.Errorf("%d of 5 windows that are left are not locked", left)
		}
	})
}

// A row of a config that cannot be read, as one that somebody wrote by hand, hides no other config.
func TestAConfigThatCannotBeReadHidesNoOther(t *testing.T) {
	db := mustOpen(t, "sqlite::memory:")
	_, err := db.Migrate(soon(t))
	check(t, err)
	s, err := slots.NewScheduler(db, slots.Settings{})
	check(t, err)
	for _, name := range []string{"bad", "good", "worse"} {
		_, err := s.PutConfig(soon(t), slots.NewConfig{Name: name, Max: 5, SizeMs: 1000})
		check(t, err)
	}
	mustExec(t, db.sql.Write, "UPDATE RL_EVENT_WNDW_CONFIG SET CONFIG_OPT_TX = 'by hand' WHERE WNDW_CONFIG_NM = 'bad'",
		"UPDATE RL_EVENT_WNDW_CONFIG SET WNDW_MAX_EVENT_CT = 'many' WHERE WNDW_CONFIG_NM = 'worse'")
	all, err := db.ActiveConfigs(soon(t), 10)
	if len(all) != 1 || all[0].Name != "good" {
		t.Errorf("listed are %v", all)
	}
	wantError(t, err, `config "bad"`, "CONFIG_OPT_TX", "put a new version", "1 more")
	if e, ok := errors.AsType[*slots.UnreadableError](err); !ok || len(e.Configs) != 2 || e.Configs[1].Name != "worse" ||
		!strings.Contains(e.Configs[1].Err.Error(), "WNDW_MAX_EVENT_CT") {
		t.Errorf("%+v", e)
	}
}
