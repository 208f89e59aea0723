package sqlstore

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// series is what these tests use.
var series = slots.Series{Scope: "*", SizeMs: 4000}

// nowhere has configs count in windows that nobody uses.
func nowhere(slots.Config) slots.Series { return slots.Series{Scope: "nowhere", SizeMs: 1000} }

// byName has configs count in the scope of their names.
func byName(c slots.Config) slots.Series { return slots.SeriesOf(c, false) }

func slotOf(n int, windowMs int64) slots.Slot {
	return slots.Slot{ID: fmt.Sprintf("s%05d", n), EventID: fmt.Sprintf("e%05d", n), Series: series,
		RequestedUs: windowMs*1000 + 1, WindowMs: windowMs, ScheduledMs: windowMs + 1, ConfigID: "c"}
}

// claim places slots into a window that is there.
func claim(t *testing.T, db *DB, windowMs int64, claimed ...slots.Slot) error {
	t.Helper()
	tx, err := db.Begin(soon(t), "")
	check(t, err)
	defer tx.Rollback()
	_, ok, err := tx.Lock(soon(t), series, windowMs, 1<<40)
	if err != nil || !ok {
		t.Fatalf("lock: %v, %v", ok, err)
	}
	if err := tx.Claim(soon(t), series, windowMs, claimed); err != nil {
		return err
	}
	return tx.Commit(soon(t))
}

func provision(t *testing.T, db *DB, fromMs int64, n int64) int64 {
	t.Helper()
	made, err := db.Provision(soon(t), series, fromMs, fromMs+n*series.SizeMs, nil)
	check(t, err)
	return made
}

// More rows than one statement makes, some of which are there.
func TestProvisionMany(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		if n := provision(t, db, -4000*700, 3); n != 3 {
			t.Fatalf("made %d of 3", n)
		}
		if n := provision(t, db, -4000*1000, 2500); n != 2497 {
			t.Fatalf("made %d, want 2497", n)
		}
		windows, err := db.Windows(soon(t), series, -1<<40, 1<<40, 5000)
		check(t, err)
		if len(windows) != 2500 || windows[0].StartMs != -4_000_000 || windows[2499].StartMs != 1499*4000 {
			t.Fatalf("%d windows from %v to %v", len(windows), windows[0], windows[len(windows)-1])
		}
	})
}

// A batch as large as there may be.
func TestClaimMany(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		provision(t, db, 0, 1)
		var all []slots.Slot
		var ids []string
		for n := range slots.MaxBatch {
			all = append(all, slotOf(n, 0))
			ids = append(ids, all[n].EventID)
		}
		check(t, claim(t, db, 0, all...))
		found, err := db.Find(soon(t), append(ids, "nobody"))
		check(t, err)
		if len(found) != slots.MaxBatch {
			t.Fatalf("found %d", len(found))
		}
		if n, ok, err := db.Peek(soon(t), series, 0); n != slots.MaxBatch || !ok || err != nil {
			t.Fatalf("the window counts %d, %v, %v", n, ok, err)
		}
		if err := claim(t, db, 0, slotOf(5000, 0), slotOf(17, 0)); slots.KindOf(err) != slots.Duplicate &&
			slots.KindOf(err) != slots.Passing {
			t.Fatalf("the same slot once more: %v", err)
		}
		other := slotOf(5001, 0)
		other.ID = all[3].ID
		if err := claim(t, db, 0, other); slots.KindOf(err) != slots.Passing {
			t.Fatalf("a slot id that is in use: %v (%v)", err, slots.KindOf(err))
		}
		again := slotOf(17, 0)
		again.ID = "another"
		if err := claim(t, db, 0, again); slots.KindOf(err) != slots.Duplicate {
			t.Fatalf("a second slot for an event, of another id: %v", err)
		}
		if n, _, err := db.Peek(soon(t), series, 0); n != slots.MaxBatch || err != nil {
			t.Fatalf("after these the window counts %d, %v", n, err)
		}
	})
}

// A claim of a window without a row is an error, not slots that nothing counts.
func TestClaimWithoutRow(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		tx, err := db.Begin(soon(t), "")
		check(t, err)
		defer tx.Rollback()
		err = tx.Claim(soon(t), series, 0, []slots.Slot{slotOf(1, 0)})
		wantError(t, err, "claim a slot", "0 rows changed instead of 1")
	})
}

// Ids are equal only if their bytes are.
func TestIDsDiffer(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		provision(t, db, 0, 1)
		ids := []string{"pay-1", "PAY-1", "pay-1 ", " pay-1", "paỳ-1", "pay-1\x00x"}
		if db.dialect.Name == "postgres" {
			ids = ids[:5] // it has no NUL in texts
		}
		for n, id := range ids {
			s := slotOf(n, 0)
			s.EventID = id
			check(t, claim(t, db, 0, s))
			_, err := db.PutConfig(soon(t), slots.Config{ID: fmt.Sprint(n), Name: id, Max: int64(n), SizeMs: 4000}, nowhere)
			check(t, err)
		}
		for n, id := range ids {
			found, err := db.Find(soon(t), []string{id})
			if err != nil || len(found) != 1 || found[0].EventID != id || found[0].ID != slotOf(n, 0).ID {
				t.Errorf("%q: %+v, %v", id, found, err)
			}
			c, err := db.ActiveConfig(soon(t), id)
			if err != nil || c.Name != id || c.Max != int64(n) {
				t.Errorf("%q: %+v, %v", id, c, err)
			}
		}
	})
}

// Instants come back as they went in, in every zone and in the hour that comes
// twice.
func instants(t *testing.T, db *DB) {
	t.Helper()
	for n, at := range []string{"2026-11-01T05:30:00.123Z", "2026-11-01T06:30:00.123Z", "2026-03-08T07:00:00Z",
		"1969-12-31T23:59:56Z", "1925-06-07T08:09:12Z", "9999-01-01T00:00:00Z"} {
		when, err := time.Parse(time.RFC3339, at)
		check(t, err)
		want := slotOf(n, plan.WindowStart(when.UnixMicro(), series.SizeMs))
		want.RequestedUs = when.UnixMicro() + 1
		provision(t, db, want.WindowMs, 2)
		if w, ok, err := db.Scout(soon(t), series, want.WindowMs, want.WindowMs+8000, 1); w != want.WindowMs ||
			!ok || err != nil {
			t.Errorf("%s: scout found %d, %v, %v; want %d", at, w, ok, err, want.WindowMs)
		}
		check(t, claim(t, db, want.WindowMs, want))
		found, err := db.Find(soon(t), []string{want.EventID})
		check(t, err)
		created := time.UnixMicro(found[0].CreatedUs)
		if off := time.Since(created).Abs(); off > 30*time.Minute {
			t.Errorf("%s: created at %v, which is %v off", at, created, off)
		}
		want.CreatedUs = found[0].CreatedUs
		if found[0] != want {
			t.Errorf("%s: found %+v, want %+v", at, found[0], want)
		}
	}
}

func TestInstantsComeBackAsTheyWentIn(t *testing.T) { eachMigrated(t, instants) }

// The same with servers, and a process, in New York.
func TestInstantsInNewYork(t *testing.T) {
	t.Parallel()
	const zone = "TZ=America/New_York"
	if !slices.Contains(os.Environ(), zone) {
		cmd := exec.CommandContext(soon(t), os.Args[0], "-test.run=^TestInstantsInNewYork$", "-test.v")
		cmd.Env = append(os.Environ(), zone)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestInstantsInNewYork/sqlite") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	all := []server{
		{"sqlite", func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "slots.db") }},
	}
	for _, engine := range dbtest.Engines() {
		zone := map[string]string{testenv.Postgres: "timezone='America/New_York'",
			testenv.MariaDB: "--default-time-zone=-05:00", testenv.MySQL: "--default-time-zone=-05:00"}[engine]
		all = append(all, server{engine,
			func(t testing.TB) string { return testenv.StartDatabase(t, engine, testenv.WithSettings(zone)).URL() }})
	}
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			db := migrated(t, s.create(t))
			instants(t, db)
		})
	}
}

// Several who put configs at once succeed, one after another.
func TestPutConfigTogether(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		before, err := db.Generation(soon(t))
		check(t, err)
		var wg sync.WaitGroup
		for n := range 10 {
			wg.Go(func() {
				put := slots.Config{ID: fmt.Sprint(n), Name: "default", Max: int64(n), SizeMs: 1500,
					Options: slots.Options{Scope: "shared", Stratified: true}}
				c, err := db.PutConfig(soon(t), put, nowhere)
				for slots.KindOf(err) == slots.Held { // the last may wait longer than the server lets it
					c, err = db.PutConfig(soon(t), put, nowhere)
				}
				if err != nil || !c.Active || c.Max != int64(n) || c.SizeMs != 1500 || c.Options.Scope != "shared" ||
					!c.Options.Stratified || c.SinceUs == 0 || c.CreatedUs == 0 {
					t.Errorf("put: %+v, %v", c, err)
				}
			})
		}
		wg.Wait()
		after, err := db.Flush(soon(t))
		if err != nil || after != before+11 {
			t.Errorf("generation %d after %d, %v", after, before, err)
		}
		all, err := db.ActiveConfigs(soon(t), 10)
		if err != nil || len(all) != 1 {
			t.Errorf("active: %+v, %v", all, err)
		}
		if n := one(t, db.sql.Read, "SELECT COUNT(*) FROM RL_EVENT_WNDW_CONFIG"); n != "10" {
			t.Errorf("%s versions are kept", n)
		}
		_, err = db.PutConfig(soon(t), slots.Config{ID: "3", Name: "default", Max: 1, SizeMs: 1000}, nowhere)
		if slots.KindOf(err) != slots.Passing {
			t.Errorf("an id that is in use: %v", err)
		}
		if again, err := db.Generation(soon(t)); again != after || err != nil {
			t.Errorf("which left the generation at %d, %v", again, err)
		}
		// Somebody who knows nothing of the generation cannot make a second one active.
		_, err = db.sql.Write.ExecContext(soon(t), "UPDATE RL_EVENT_WNDW_CONFIG SET ACT_IN = 1")
		if err == nil || slots.KindOf(db.sql.Fail(soon(t), "x", err)) != slots.Passing {
			t.Errorf("two active versions: %v", err)
		}
	})
}

// A calendar comes back, and what is not understood names its row.
func TestConfigOptions(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		calendar, err := plan.ParseCalendar([]byte(`{"zone":"Europe/Berlin"}`))
		check(t, err)
		c, err := db.PutConfig(soon(t), slots.Config{ID: "1", Name: "n", Max: 1, SizeMs: 1000,
			Options: slots.Options{Calendar: calendar}}, nowhere)
		if err != nil || c.Options.Calendar.String() != calendar.String() || c.Options.Stratified {
			t.Fatalf("%+v, %v", c, err)
		}
		for value, want := range map[string]string{
			`{"jitter":"stratified","colour":"red"}`: "colour", `{"jitter":"none"}`: `jitter "none"`, `{"scope":1}`: "scope",
			`{} {}`: "more", `{"calendar":{"zone":"Nowhere"}}`: "calendar",
		} {
			mustExec(t, db.sql.Write, "UPDATE RL_EVENT_WNDW_CONFIG SET CONFIG_OPT_TX = '"+value+"'")
			_, err := db.ActiveConfig(soon(t), "n")
			wantError(t, err, "row 1", `config "n"`, "CONFIG_OPT_TX", want)
		}
		mustExec(t, db.sql.Write, "UPDATE RL_EVENT_WNDW_CONFIG SET CONFIG_OPT_TX = NULL, WNDW_SIZE_ISO_DUR_TX = 'P1Y'")
		_, err = db.ActiveConfig(soon(t), "n")
		wantError(t, err, "row 1", "P1Y")
	})
}

// One leads at a time, by the database's clock, until his time is over.
func TestOnlyOneLeadsAtATime(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		lead := func(work, holder string, ttl time.Duration) bool {
			t.Helper()
			ok, err := db.Lead(soon(t), work, holder, ttl)
			check(t, err)
			return ok
		}
		if !lead("purge", "a", time.Hour) || lead("purge", "b", time.Hour) || !lead("purge", "a", time.Millisecond) ||
			!lead("other", "b", time.Hour) {
			t.Fatal("a leads purge, b leads other")
		}
		for ctx := soon(t); !lead("purge", "b", time.Hour); {
			if ctx.Err() != nil {
				t.Fatal("b does not lead although the time of a is over")
			}
		}
		if lead("purge", "a", time.Hour) {
			t.Fatal("a leads beside b")
		}
		var wg sync.WaitGroup
		var leaders sync.Map
		for n := range 8 {
			wg.Go(func() {
				if lead("new", fmt.Sprint(n), time.Hour) {
					leaders.Store(n, true)
				}
			})
		}
		wg.Wait()
		count := 0
		leaders.Range(func(any, any) bool { count++; return true })
		if count != 1 {
			t.Fatalf("%d lead at the same time", count)
		}
	})
}

// Purging waits for nobody's window, and holds none up.
func TestPurgeBesideLocks(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		if db.sql.Read != db.sql.Write {
			t.Skip("transactions wait for each other")
		}
		provision(t, db, 0, 20)
		tx, err := db.Begin(soon(t), "")
		check(t, err)
		defer tx.Rollback()
		if _, ok, err := tx.Lock(soon(t), series, 40_000, 1); !ok || err != nil {
			t.Fatalf("lock: %v, %v", ok, err)
		}
		if n, err := db.PurgeWindows(soon(t), 40_000, time.Now().Add(time.Hour).UnixMicro(), 7); n != 7 || err != nil {
			t.Fatalf("purged %d, %v; want 7", n, err)
		}
		if n, err := db.PurgeWindows(soon(t), 40_000, time.Now().Add(time.Hour).UnixMicro(), 7); n != 3 || err != nil {
			t.Fatalf("purged %d, %v; want the other 3", n, err)
		}
		check(t, tx.Claim(soon(t), series, 40_000, []slots.Slot{slotOf(1, 40_000)}))
		check(t, tx.Commit(soon(t)))
		if n, err := db.PurgeSlots(soon(t), time.Now().Add(time.Hour).UnixMicro(), 10); n != 1 || err != nil {
			t.Fatalf("purged %d slots, %v", n, err)
		}
	})
}

// Errors of the drivers, by what can be done about them.
func TestErrorsTellTheirKind(t *testing.T) {
	eachServer(t, func(t *testing.T, address string) {
		db := migrated(t, address)
		provision(t, db, 0, 2)
		kill := map[string]string{"postgres": "SELECT pg_terminate_backend(%s)", "mysql": "KILL %s"}[db.dialect.Name]
		self := map[string]string{"postgres": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}[db.dialect.Name]

		begun, err := db.Begin(soon(t), "")
		check(t, err)
		var id string
		session, err := begun.(*tx).Session(soon(t), "begin")
		check(t, err)
		check(t, session.QueryRowContext(soon(t), self).Scan(&id))
		mustExec(t, db.sql.Write, fmt.Sprintf(kill, id))
		_, _, err = begun.Lock(soon(t), series, 0, 5)
		if err == nil || slots.KindOf(err) != slots.Passing {
			t.Errorf("%s: a lost connection: %v (%v)", db.dialect.Name, err, slots.KindOf(err))
		}
		begun.Rollback()
		check(t, claim(t, db, 0, slotOf(1, 0)))

		mustExec(t, db.sql.Write, "DROP TABLE RL_WNDW_CT")
		_, _, err = db.Peek(soon(t), series, 0)
		if err == nil || slots.KindOf(err) != slots.Failed {
			t.Errorf("%s: no table: %v (%v)", db.dialect.Name, err, slots.KindOf(err))
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if _, err := db.Begin(soon(t), ""); err == nil {
			t.Errorf("%s: a closed store begins transactions", db.dialect.Name)
		}
	})
}

// Two who lock the same windows the other way round: one of them may try again.
func TestDeadlockPasses(t *testing.T) {
	eachServer(t, func(t *testing.T, address string) {
		db := migrated(t, address)
		provision(t, db, 0, 2)
		add := map[string]string{
			"postgres": "UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1 WHERE WNDW_SCOPE_NM = '*' AND WNDW_SIZE_MS = 4000 AND " +
				"WNDW_STRT_TS = $1",
			"mysql": "UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1 WHERE WNDW_SCOPE_NM = '*' AND WNDW_SIZE_MS = 4000 AND " +
				"WNDW_STRT_TS = ?",
		}[db.dialect.Name]
		var barrier, wg sync.WaitGroup
		barrier.Add(2)
		errs := make([]error, 2)
		for n := range 2 {
			wg.Go(func() {
				tx, err := db.sql.Write.BeginTx(soon(t), nil)
				if err != nil {
					barrier.Done()
					t.Error(err)
					return
				}
				defer func() { _ = tx.Rollback() }()
				_, err = db.sql.Change(soon(t), tx, "first", query{Text: add, Args: []any{db.at(int64(n) * 4000)}})
				barrier.Done()
				barrier.Wait()
				if err == nil {
					_, err = db.sql.Change(soon(t), tx, "second", query{Text: add, Args: []any{db.at(4000 - int64(n)*4000)}})
				}
				errs[n] = err
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err == nil || slots.KindOf(err) != slots.Passing {
			t.Errorf("%s: %v (%v)", db.dialect.Name, err, slots.KindOf(err))
		}
	})
}

// A transaction that has ended does nothing more, and gives its connection back.
func TestEndedTransactions(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		provision(t, db, 0, 2)
		before := db.sql.Write.Stats().InUse
		for n := range 2 * db.sql.Write.Stats().MaxOpenConnections {
			tx, err := db.Begin(soon(t), "")
			check(t, err)
			if _, ok, err := tx.Lock(soon(t), series, 0, 1000); !ok || err != nil {
				t.Fatal(ok, err)
			}
			one := []slots.Slot{slotOf(n, 0)}
			if both, ok := tx.(slots.ClaimCommitter); ok {
				check(t, both.ClaimCommit(soon(t), series, 0, one))
			} else {
				check(t, tx.Claim(soon(t), series, 0, one))
				check(t, tx.Commit(soon(t)))
			}
			tx.Rollback()
			if _, _, err := tx.Lock(soon(t), series, 0, 1000); err == nil {
				t.Fatal("a lock after the commit")
			}
			if err := tx.Claim(soon(t), series, 0, one); err == nil {
				t.Fatal("a claim after the commit")
			}
			if err := tx.Commit(soon(t)); err == nil {
				t.Fatal("a second commit")
			}
		}
		if s := db.sql.Write.Stats(); s.InUse != before {
			t.Errorf("%d connections are in use, %d before", s.InUse, before)
		}
	})
}
