package sqlstore

import (
	"database/sql"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

var soon, check, one, wantError = dbtest.Soon, dbtest.Check, dbtest.One, dbtest.WantError

// A server makes empty databases of one kind.
type server struct {
	name   string
	create func(t testing.TB) (url string)
}

func servers() []server {
	all := []server{
		{"sqlite", func(t testing.TB) string {
			testenv.UseSQLite(t)
			return "sqlite:" + filepath.Join(t.TempDir(), "a b%41.db")
		}},
		{"memory", func(testing.TB) string { return "sqlite::memory:" }},
	}
	for _, engine := range dbtest.Engines() {
		all = append(all, shared(engine))
	}
	return all
}

func shared(engine string) server {
	return server{engine,
		func(t testing.TB) string { return testenv.SharedDatabase(t, engine).CreateDatabase("sqlstore") }}
}

// each runs a test on a new database of every kind.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	eachOf(t, servers(), test)
}

// eachMake is eachMigrated without SQLite in memory, which is SQLite once more.
func eachMake(t *testing.T, test func(t *testing.T, db *DB)) {
	t.Helper()
	eachOf(t, slices.DeleteFunc(servers(), func(s server) bool { return s.name == "memory" }),
		func(t *testing.T, url string) {
			test(t, migrated(t, url))
		})
}

// eachServer is each without those that live in the process.
func eachServer(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	eachOf(t, slices.DeleteFunc(servers(), func(s server) bool { return s.name == "sqlite" || s.name == "memory" }), test)
}

func eachOf(t *testing.T, servers []server, test func(t *testing.T, url string)) {
	t.Helper()
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s.create(t))
		})
	}
}

// eachMigrated runs a test on a new database with a schema.
func eachMigrated(t *testing.T, test func(t *testing.T, db *DB)) {
	t.Helper()
	each(t, func(t *testing.T, url string) { test(t, migrated(t, url)) })
}

func mustOpen(t testing.TB, url string) *DB {
	t.Helper()
	db, err := Open(Config{URL: url})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

func migrated(t testing.TB, url string) *DB {
	t.Helper()
	db := mustOpen(t, url)
	if _, err := db.Migrate(soon(t)); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return db
}

func mustExec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, text := range statements {
		if _, err := db.ExecContext(soon(t), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}
