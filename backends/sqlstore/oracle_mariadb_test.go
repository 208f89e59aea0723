package sqlstore

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/oracletest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// onMariaDB begins the URL of a MariaDB that runs what Oracle is sent, word for word: the tables, the
// package and the blocks. Only HEADGATE_NOW_US has a body of its own, and the views are left out.
const onMariaDB = "oracle-on-mariadb:"

// oracleShims take the place of what MariaDB does not know.
var oracleShims = []string{`CREATE OR REPLACE FUNCTION HEADGATE_NOW_US RETURN BIGINT IS
BEGIN RETURN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)); END;`}

// openOracleOnMariaDB opens a backend of Oracle's dialect over a MariaDB.
func openOracleOnMariaDB(t testing.TB, address string) *Backend {
	t.Helper()
	driver, err := oracletest.MariaDB(address, testenv.OracleSQLMode)
	check(t, err)
	conf := Config{Timeout: 10 * time.Second, InFlight: 1, MaxSlice: defaultMaxSlice, Sweep: seldom,
		dialect: oracle()}
	conf.Log = quiet
	return start(conf, sqldb.Over(sqldb.Oracle, driver, conf.database()))
}

// migrateOracleOnMariaDB runs what headgate migrate --print prints.
func migrateOracleOnMariaDB(t testing.TB, address string) {
	t.Helper()
	testenv.OracleMode(t, testenv.SharedDatabase(t, testenv.MariaDB))
	b := open(t, onMariaDB+address)
	for _, text := range append(oracleShims, printedOracle(t)...) {
		if strings.Contains(text, "FUNCTION HEADGATE_NOW_US RETURN NUMBER") || strings.Contains(text, " VIEW ") {
			continue
		}
		execute(t, b, strings.ReplaceAll(text, sqldb.Oracle.Now, "UTC_TIMESTAMP(6)"))
	}
}

// printedOracle is the SQL that an administrator is to run.
func printedOracle(t testing.TB) []string {
	t.Helper()
	text, err := Print("oracle")
	check(t, err)
	return oracletest.Printed(text)
}

// The whole conformance suite, with several processes.
func TestConformanceOracleOnMariaDB(t *testing.T) {
	server := testenv.StartDatabase(t, testenv.MariaDB)
	url := onMariaDB + server.CreateDatabase("limits")
	migrate(t, url)
	s := suite(t, url)
	s.Short = true // the engine is MariaDB's
	s.Faults = &backendtest.Faults{
		Freeze: func(testing.TB) { server.Pause() }, Thaw: func(testing.TB) { server.Resume() },
		Kill: func(testing.TB) { server.Kill() }, Restart: func(testing.TB) { server.Restart() },
	}
	backendtest.Run(t, s)
}

// States of more than one RAW are written, read, made shorter and dropped in full.
func TestOracleStatesHaveParts(t *testing.T) {
	url := onMariaDB + shared(testenv.MariaDB).create(t)
	migrate(t, url)
	b := open(t, url)
	log := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 1000, Window: time.Hour})
	key := limit.Key{Group: "g", Limit: "llog"}
	const parts = "SELECT COUNT(*) FROM HEADGATE_STATE_MORE"
	at := limit.InstantOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	one := func(at limit.Instant) limit.Verdict {
		v := try(soon(t), b, limit.Request{At: at, Ops: []limit.Op{{Key: key, Limit: log, Cost: 1}}})[0]
		check(t, v.Err)
		return v
	}
	for i := range 1000 {
		if v := one(at.Add(time.Duration(i) * time.Second)); !v.Admitted || v.Outcomes[0].Remaining != int64(999-i) {
			t.Fatalf("unit %d: %+v", i, v)
		}
	}
	if v := one(at.Add(1000 * time.Second)); v.Admitted || v.Outcomes[0].Retry != 2600*time.Second {
		t.Errorf("unit 1001: %+v", v)
	}
	if n := number64(t, b, parts); n < 1 {
		t.Fatalf("there are %d parts: nothing is tested", n)
	}
	if v := one(at.Add(2 * time.Hour)); v.Outcomes[0].Remaining != 999 || number64(t, b, parts) != 0 {
		t.Errorf("after the window: %+v, %d parts", v, number64(t, b, parts))
	}
	for i := range 999 {
		one(at.Add(2*time.Hour + time.Duration(i)*time.Second))
	}
	check(t, b.Forget(soon(t), []limit.Key{key}))
	if n := number64(t, b, "SELECT COUNT(*) FROM HEADGATE_STATE") + number64(t, b, parts); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// A real Oracle, where there is one.
func TestRealOracleConformance(t *testing.T) {
	url := testenv.RequireDSN(t, testenv.Oracle)
	migrate(t, url)
	backendtest.Run(t, suite(t, url))
}
