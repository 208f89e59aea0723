package sqlstore

import (
	"database/sql"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

var soon, check = dbtest.Soon, dbtest.Check

var quiet = slog.New(slog.DiscardHandler)

// A server makes empty databases of one kind.
type server struct {
	name   string
	create func(t testing.TB) (url string)
}

func servers() []server {
	all := []server{{"sqlite", func(t testing.TB) string {
		testenv.UseSQLite(t)
		return "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	}}}
	for _, engine := range dbtest.Engines() {
		all = append(all, shared(engine))
	}
	return append(all, server{"oracle-on-mariadb",
		func(t testing.TB) string { return onMariaDB + shared(testenv.MariaDB).create(t) }})
}

func shared(engine string) server {
	return server{engine, func(t testing.TB) string { return testenv.SharedDatabase(t, engine).CreateDatabase("limits") }}
}

// relaxed is a server whose databases are asked by commit=relaxed.
func relaxed(s server) server {
	return server{s.name + ", relaxed", func(t testing.TB) string { return with(s.create(t), "commit=relaxed") }}
}

// each runs a test on a new database of every kind.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	for _, s := range servers() {
		t.Run(s.name, func(t *testing.T) { test(t, s.create(t)) })
	}
}

// eachMigrated runs a test on a new database with the schema.
func eachMigrated(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	each(t, func(t *testing.T, url string) {
		migrate(t, url)
		test(t, url)
	})
}

// eachServer is eachMigrated without SQLite, which is no server.
func eachServer(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	for _, engine := range dbtest.Engines() { // Oracle's texts are sent by another driver than Oracle's
		t.Run(engine, func(t *testing.T) {
			url := shared(engine).create(t)
			migrate(t, url)
			test(t, url)
		})
	}
}

func migrate(t testing.TB, url string) {
	t.Helper()
	if address, ok := strings.CutPrefix(url, onMariaDB); ok {
		migrateOracleOnMariaDB(t, address)
		return
	}
	b := open(t, url)
	if _, err := b.Migrate(soon(t)); err != nil {
		t.Fatalf("migrate: %v", err)
	}
}

// seldom is how often the janitors of tests walk by themselves, so that no walk deletes rows that a test counts.
const seldom = 24 * time.Hour

// openURL opens a backend that waits longer than the default unless the URL says how long: what a
// busy machine delays is no failure.
func openURL(t testing.TB, url string) *Backend {
	t.Helper()
	if address, ok := strings.CutPrefix(url, onMariaDB); ok {
		return openOracleOnMariaDB(t, address)
	}
	c, err := Parse(url)
	check(t, err)
	if !strings.Contains(url, "timeout=") {
		c.Timeout = 10 * time.Second
	}
	c.Sweep = seldom
	b, err := Open(c)
	check(t, err)
	return b
}

// open is openURL for a test that does not close the backend itself.
func open(t testing.TB, url string) *Backend {
	t.Helper()
	b := openURL(t, url)
	t.Cleanup(func() { check(t, b.Close()) })
	return b
}

// with adds a parameter to a URL.
func with(address, parameter string) string {
	if strings.Contains(address, "?") {
		return address + "&" + parameter
	}
	return address + "?" + parameter
}

// through is the URL with another host and port.
func through(t testing.TB, address, host string) string {
	t.Helper()
	u, err := url.Parse(address)
	check(t, err)
	u.Host = host
	return u.String()
}

// hostOf is the host and port of a URL.
func hostOf(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	check(t, err)
	return u.Host
}

// number reads a single number.
func number64(t testing.TB, b *Backend, text string) int64 {
	t.Helper()
	var n sql.NullInt64
	check(t, b.db.Read.QueryRowContext(soon(t), text).Scan(&n))
	return n.Int64
}

func execute(t testing.TB, b *Backend, text string) {
	t.Helper()
	_, err := b.db.Write.ExecContext(soon(t), text)
	check(t, err)
}
