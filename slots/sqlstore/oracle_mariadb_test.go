package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/internal/slotstest"
	"github.com/headgate-rls/headgate/test/oracletest"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// oracleOnMariaDB runs the package RL_SLOT_API, the very text that Oracle gets, on
// MariaDB in its Oracle mode, over the tables of the MySQL dialect. Only the
// functions of time have bodies of their own.
type oracleOnMariaDB struct{ sessions *sql.DB }

// oracleShims are the functions of time for MariaDB.
var oracleShims = []string{
	`CREATE OR REPLACE FUNCTION RL_NOW RETURN DATETIME(6) IS
BEGIN RETURN UTC_TIMESTAMP(6); END;`,
	`CREATE OR REPLACE FUNCTION RL_TS(p_text IN VARCHAR2(40)) RETURN DATETIME(6) IS
BEGIN RETURN CAST(p_text AS DATETIME(6)); END;`,
	`CREATE OR REPLACE FUNCTION RL_TXT(p_ts IN DATETIME(6)) RETURN VARCHAR2(40) IS
BEGIN RETURN DATE_FORMAT(p_ts, '%Y-%m-%d %H:%i:%s.%f'); END;`,
	`CREATE OR REPLACE FUNCTION RL_CONFIG_HELD(p_config_id IN VARCHAR2(50)) RETURN NUMBER(1) IS
  v_active NUMBER(1);
BEGIN
  SELECT MAX(ACT_IN) INTO v_active FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = p_config_id LOCK IN SHARE MODE;
  RETURN NVL(v_active, 1);
END;`,
	`CREATE OR REPLACE FUNCTION RL_ADD_MS(p_ts IN DATETIME(6), p_ms IN NUMBER(19)) RETURN DATETIME(6) IS
BEGIN RETURN p_ts + INTERVAL p_ms * 1000 MICROSECOND; END;`,
}

// newOracleOnMariaDB installs the package in a database that has the tables.
func newOracleOnMariaDB(t *testing.T, address string) oracleOnMariaDB {
	t.Helper()
	o, err := openOracleOnMariaDB(address, testenv.OracleMode(t, testenv.SharedDatabase(t, testenv.MariaDB)))
	check(t, err)
	t.Cleanup(func() { _ = o.sessions.Close() }) // its connections may have been cut
	mustExec(t, o.sessions, append(oracleShims, oraclePackage(t)...)...)
	return o
}

// openOracleOnMariaDB connects to a database that has the package.
func openOracleOnMariaDB(address, mode string) (oracleOnMariaDB, error) {
	config, err := oracletest.MariaDBConfig(address, mode)
	if err != nil {
		return oracleOnMariaDB{}, err
	}
	config.Params["collation_connection"] = "utf8mb4_nopad_bin" // as that of the tables
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return oracleOnMariaDB{}, err
	}
	return oracleOnMariaDB{sql.OpenDB(connector)}, nil
}

// assign implements dialect.assign.
func (o oracleOnMariaDB) assign(ctx context.Context, _ *sql.DB, s *slots.Search) (slots.Found, error) {
	// OUT parameters take a second trip on MariaDB, on the same connection.
	conn, err := o.sessions.Conn(ctx)
	if err != nil {
		return slots.Found{}, err
	}
	defer conn.Close()
	var r oracleResult
	places := r.places()
	outs := make([]string, len(places))
	for i := range outs {
		outs[i] = fmt.Sprintf("@o%d", i+1)
	}
	call := "CALL RL_SLOT_API.ASSIGN_SLOT(" + strings.Repeat("?, ", oracleInputs) + strings.Join(outs, ", ") + ")"
	if _, err := conn.ExecContext(ctx, call, oracleArguments(s)...); err != nil {
		return slots.Found{}, err
	}
	for i, p := range places {
		if text, ok := p.(*string); ok {
			places[i] = nullText{text}
		}
	}
	if err := conn.QueryRowContext(ctx, "SELECT "+strings.Join(outs, ", ")).Scan(places...); err != nil {
		return slots.Found{}, err
	}
	return r.found(s)
}

// nullText reads NULL as Oracle's drivers do.
type nullText struct{ to *string }

func (n nullText) Scan(src any) error {
	var text sql.NullString
	err := text.Scan(src)
	*n.to = text.String
	return err
}

// on returns the MySQL dialect's Store with this procedure instead of its own.
func (o oracleOnMariaDB) on(db *DB) *DB {
	d := *db.dialect
	d.assign = o.assign
	db.dialect = &d
	return db
}

// oracleHarness is that of the package, behind a proxy that can cut its
// connections.
func oracleHarness(t *testing.T) slotstest.Harness {
	server := testenv.SharedDatabase(t, testenv.MariaDB)
	mode := testenv.OracleMode(t, server)
	check(t, os.Setenv(envOracleMode, mode)) // for processes; each test sets the same
	return slotstest.Harness{
		Name:    "oracle-on-mariadb",
		Engines: []string{slotstest.EngineProcedure},
		Short:   []string{slotstest.PartStore}, // it is the store of the MySQL dialect
		Fresh: func(t *testing.T) slotstest.Database {
			direct := testenv.SharedDatabase(t, testenv.MariaDB).CreateDatabase("oracle")
			migrated(t, direct)
			newOracleOnMariaDB(t, direct)
			proxy := testenv.StartProxy(t, server.Addr)
			u, err := url.Parse(direct)
			check(t, err)
			u.Host = proxy.Addr
			return slotstest.Database{URL: u.String(), CutAll: proxy.Cut, Open: func(t *testing.T) slots.Store {
				db, o, err := openPackage(u.String(), mode)
				check(t, err)
				t.Cleanup(func() { _, _ = db.Close(), o.sessions.Close() }) // the suite may have closed or cut them
				return db
			}}
		},
	}
}

// openPackage opens a database that has the package, which the Store calls.
func openPackage(url, mode string) (*DB, oracleOnMariaDB, error) {
	db, err := Open(Config{URL: url})
	if err != nil {
		return nil, oracleOnMariaDB{}, err
	}
	o, err := openOracleOnMariaDB(url, mode)
	if err != nil {
		return nil, o, errors.Join(err, db.Close())
	}
	return o.on(db), o, nil
}

// The whole suite, on the package.
func TestOraclePackageConformance(t *testing.T) {
	t.Parallel()
	slotstest.Run(t, oracleHarness(t))
}

func TestOraclePackageFindsTheEarliestWindow(t *testing.T) {
	t.Parallel()
	slotstest.RunEarliest(t, oracleHarness(t))
}

func TestOraclePackageStopsWhenPaused(t *testing.T) {
	t.Parallel()
	slotstest.RunPause(t, oracleHarness(t))
}

// The package under what three processes do to it that are killed, and whose
// connections are cut.
func TestOraclePackageChaos(t *testing.T) {
	t.Parallel()
	slotstest.RunChaos(t, oracleHarness(t))
}

// envOracleMode tells the processes of TestOraclePackageChaos the mode of sessions.
const envOracleMode = "HEADGATE_TEST_ORACLE_MODE"

// TestMain does a process's part in TestOraclePackageChaos, if it is one of them.
func TestMain(m *testing.M) {
	slotstest.Main(m, func(_, url string) (slots.Store, error) {
		db, _, err := openPackage(url, os.Getenv(envOracleMode))
		return db, err
	})
}

// The package and the engine tx give the same answers, and see the same on
// the way.
func TestOraclePackageEqualsTx(t *testing.T) {
	t.Parallel()
	url := testenv.SharedDatabase(t, testenv.MariaDB).CreateDatabase("oracle")
	db := migrated(t, url)
	sameAnswers(t, db, newOracleOnMariaDB(t, url).on(mustOpen(t, url)).Procedure(), uint64(random.Times(15, 40)))
}

// packageOn returns a store and the package over a new database.
func packageOn(t *testing.T) (*DB, slots.Procedure) {
	t.Helper()
	url := testenv.SharedDatabase(t, testenv.MariaDB).CreateDatabase("oracle")
	db := migrated(t, url)
	return db, newOracleOnMariaDB(t, url).on(mustOpen(t, url)).Procedure()
}

// hold locks a window until the test ends.
func hold(t *testing.T, db *DB, s slots.Series, windowMs int64) {
	t.Helper()
	tx, err := db.Begin(soon(t), "")
	check(t, err)
	t.Cleanup(tx.Rollback)
	if _, ok, err := tx.Lock(soon(t), s, windowMs, 1<<30); !ok || err != nil {
		t.Fatalf("window %d cannot be locked: %v", windowMs, err)
	}
}

// Of two who place one event, the later waits for the first and gets its
// slot; no counter but the first's has changed.
func TestOraclePackageDuplicate(t *testing.T) {
	db, procedure := packageOn(t)
	s := oracleSearch()
	s.Asks[0].EventID = "pending-event"
	other := slots.Slot{ID: "theirs", EventID: "pending-event", Series: s.Series, RequestedUs: noonMs * 1000,
		WindowMs: noonMs + 4000, ScheduledMs: noonMs + 4001, ConfigID: "c1"}
	_, err := db.Provision(soon(t), s.Series, noonMs, noonMs+8000, nil)
	check(t, err)
	tx, err := db.Begin(soon(t), "")
	check(t, err)
	defer tx.Rollback()
	_, ok, err := tx.Lock(soon(t), s.Series, other.WindowMs, 100)
	check(t, err)
	if !ok {
		t.Fatal("not locked")
	}
	check(t, tx.Claim(soon(t), s.Series, other.WindowMs, []slots.Slot{other}))
	type outcome struct {
		found slots.Found
		err   error
	}
	ctx, done := soon(t), make(chan outcome, 1)
	go func() {
		for {
			// The server ends a wait after a second, which may be over before anybody looks.
			found, err := procedure.Call(ctx, s)
			if slots.KindOf(err) != slots.Held || ctx.Err() != nil {
				done <- outcome{found, err}
				return
			}
		}
	}()
	for one(t, db.sql.Read, "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT' AND "+
		"trx_query LIKE '%pending-event%'") == "0" {
		if ctx.Err() != nil {
			t.Fatal("nobody waits for the event's first slot")
		}
		time.Sleep(200 * time.Millisecond) // the table is made anew for who has not looked for 100 ms
	}
	check(t, tx.Commit(ctx))
	got := <-done
	check(t, got.err)
	if got.found.Answers[0].Status != slots.Existing || got.found.Answers[0].Slot.ID != "theirs" {
		t.Errorf("found %+v, want their slot", got.found)
	}
	wantNoDrift(t, db, s.Series)
	if n, _, err := db.Peek(ctx, s.Series, noonMs); n != 0 || err != nil {
		t.Errorf("the window it gave up counts %d, %v", n, err)
	}
}

func wantNoDrift(t *testing.T, db *DB, s slots.Series) {
	t.Helper()
	use(t, db, s)
	drifts, _, err := db.Drift(soon(t), noonMs-1<<40, noonMs+1<<40, nil, 100, false)
	check(t, err)
	if len(drifts) > 0 {
		t.Errorf("counters differ from slots: %+v", drifts)
	}
}

// An error inside the package leaves no lock and no half of a claim behind, and a
// lost answer is given again.
func TestOraclePackageFails(t *testing.T) {
	db, procedure := packageOn(t)
	first, err := procedure.Call(soon(t), oracleSearch())
	check(t, err)
	s := oracleSearch()
	s.Asks[0].EventID = "e2" // of another event, and the slot's id once more
	if _, err := procedure.Call(soon(t), s); slots.KindOf(err) != slots.Passing {
		t.Errorf("a slot id in use: %v, want it to pass", err)
	}
	hold(t, db, s.Series, noonMs)
	nameless := oracleSearch()
	// '' is NULL, where there may be none
	nameless.FirstMs, nameless.Asks[0].EventID, nameless.Asks[0].SlotID, nameless.ConfigID = noonMs-4000, "e3", "s3", ""
	if _, err := procedure.Call(soon(t), nameless); err == nil {
		t.Error("a slot without a config was taken")
	}
	hold(t, db, s.Series, nameless.FirstMs)
	wantNoDrift(t, db, s.Series)
	again, err := procedure.Call(soon(t), oracleSearch())
	check(t, err)
	again.Answers[0].Slot.CreatedUs = 0
	if again.Answers[0] != first.Answers[0] || again.Answers[0].Status != slots.New {
		t.Errorf("asked again: %+v, want %+v", again.Answers[0], first.Answers[0])
	}
}

// A window that is made counts what is scheduled in it already, from its first
// millisecond to its last, by windows of whatever size.
func TestOraclePackageSeeds(t *testing.T) {
	db, procedure := packageOn(t)
	s := oracleSearch()
	other := slots.Series{Scope: s.Scope, SizeMs: 500}
	for i, ms := range []int64{noonMs - 1, noonMs, noonMs + 3999, noonMs + 4000, noonMs + 8001} {
		window := ms - (ms%500+500)%500
		_, err := db.Provision(soon(t), other, window, window+500, nil)
		check(t, err)
		tx, err := db.Begin(soon(t), "")
		check(t, err)
		slot := slots.Slot{ID: fmt.Sprintf("s-%d", i), EventID: fmt.Sprintf("e-%d", i), Series: other, RequestedUs: ms * 1000,
			WindowMs: window, ScheduledMs: ms, ConfigID: "c"}
		check(t, tx.Claim(soon(t), other, window, []slots.Slot{slot}))
		check(t, tx.Commit(soon(t)))
	}
	s.Asks[0].FirstMax = 2 // the first window has two
	found, err := procedure.Call(soon(t), s)
	check(t, err)
	if got := found.Answers[0].Slot.WindowMs; got != noonMs+4000 || found.FirstCount != 2 {
		t.Errorf("window %d with %d in the first, want %d with 2", got, found.FirstCount, noonMs+4000)
	}
	windows, err := db.Windows(soon(t), s.Series, noonMs, noonMs+12_000, 10)
	check(t, err)
	if got, want := fmt.Sprint(windows), fmt.Sprintf("[{%d 2} {%d 2}]", noonMs, noonMs+4000); got != want {
		t.Errorf("windows %s, want %s", got, want)
	}
}
