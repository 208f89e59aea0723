package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/testenv"
)

// envMySQL is a URL of a genuine MySQL, whose user may create databases, to test
// beside MariaDB: such as mysql://user:password@127.0.0.1:3306/any.
const envMySQL = "TEST_MYSQL_DSN"

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
		{"postgres", func(t testing.TB) string { return testenv.SharedPostgres(t).CreateDatabase("sqlstore") }},
		{"mariadb", func(t testing.TB) string { return testenv.SharedMariaDB(t).CreateDatabase("sqlstore") }},
	}
	if address := os.Getenv(envMySQL); address != "" {
		all = append(all, server{"mysql", func(t testing.TB) string {
			return createMySQL(t, testenv.RequireDSN(t, testenv.MySQL))
		}})
	}
	return all
}

var mysqlDatabases atomic.Int64

// createMySQL makes a database on a server that testenv does not start.
func createMySQL(t testing.TB, address string) string {
	t.Helper()
	db := mustOpen(t, address)
	name := fmt.Sprintf("headgate_%d_%d", os.Getpid(), mysqlDatabases.Add(1))
	mustExec(t, db.pools.write, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		db := mustOpen(t, address)
		mustExec(t, db.pools.write, "DROP DATABASE "+name)
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("the address of MySQL cannot be read")
	}
	u.Path = name
	return u.String()
}

// each runs a test on a new database of every kind.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	for _, s := range servers() {
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

// soon is a context that ends when the test should have ended long ago.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustExec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, text := range statements {
		if _, err := db.ExecContext(soon(t), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// one reads a single value as text.
func one(t testing.TB, db *sql.DB, text string) string {
	t.Helper()
	var value sql.NullString
	if err := db.QueryRowContext(soon(t), text).Scan(&value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value.String
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one about %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("error %q says nothing of %q", err, part)
		}
	}
}
