package slotstest

import (
	"net/url"
	"path/filepath"
	"testing"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/sqlstore"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

func TestMain(m *testing.M) {
	Main(m, func(_, url string) (slots.Store, error) { return sqlstore.Open(sqlstore.Config{URL: url}) })
}

// opener returns Database.Open for a URL.
func opener(url string) func(t *testing.T) slots.Store {
	return func(t *testing.T) slots.Store {
		t.Helper()
		db, err := sqlstore.Open(sqlstore.Config{URL: url})
		must(t, err, "open the store")
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Logf("close the store: %v", err) // its connections may have been cut
			}
		})
		_, err = db.Migrate(limited(t))
		must(t, err, "migrate")
		return db
	}
}

func sqliteHarness(t *testing.T) Harness {
	testenv.UseSQLite(t)
	return Harness{Name: "sqlite", Serial: true, Fresh: func(t *testing.T) Database {
		url := "sqlite:" + filepath.Join(t.TempDir(), "slots.db") + "?synchronous=normal"
		return Database{Open: opener(url), URL: url}
	}}
}

// sharedHarness is that of a database server that tests share.
func sharedHarness(engine string) func(*testing.T) Harness {
	return func(t *testing.T) Harness {
		return serverHarness(t, engine, func(t *testing.T) *testenv.Database { return testenv.SharedDatabase(t, engine) })
	}
}

// serverHarness is that of a database server, of which hold is each test's own.
func serverHarness(t *testing.T, engine string, hold func(*testing.T) *testenv.Database) Harness {
	server := hold(t)
	return Harness{Name: engine, Parallel: true, Fresh: func(t *testing.T) Database {
		return proxied(t, hold(t).CreateDatabase("slots"), server.Addr)
	}}
}

// proxied is a database behind a proxy that can cut its connections.
func proxied(t *testing.T, at, addr string) Database {
	t.Helper()
	p := testenv.StartProxy(t, addr)
	u, err := url.Parse(at)
	must(t, err, "the database's URL")
	u.Host = p.Addr
	return Database{Open: opener(u.String()), URL: u.String(), CutAll: p.Cut}
}

// harnesses are those of a store of each dialect, in the long form of all.
func harnesses() map[string]func(*testing.T) Harness {
	all := map[string]func(*testing.T) Harness{"sqlite": sqliteHarness}
	for _, engine := range dbtest.Engines() {
		all[engine] = sharedHarness(engine)
	}
	return all
}

// kinds are the harnesses of a database with locks, PostgreSQL, and of one without, SQLite; in the long
// form all. The engine tx is the same code on every database, which the suite holds to one contract.
func kinds() map[string]func(*testing.T) Harness {
	all := harnesses()
	if !random.Long() {
		delete(all, testenv.MariaDB)
	}
	return all
}

func TestStores(t *testing.T) {
	all := harnesses()
	all[testenv.MySQL] = sharedHarness(testenv.MySQL)
	for name, harness := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait for servers most of the time
			h := harness(t)
			switch {
			case name == testenv.MySQL: // MariaDB has its dialect
				h.Short = Parts
			case kinds()[name] == nil:
				h.Short = []string{EngineTx}
			}
			Run(t, h)
		})
	}
}

func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds for each store and engine")
	}
	for name, harness := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			RunChaos(t, harness(t))
		})
	}
}
