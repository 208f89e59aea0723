package sqldb

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

var soon, check, one, wantError = dbtest.Soon, dbtest.Check, dbtest.One, dbtest.WantError

func TestParseHidesCredentials(t *testing.T) {
	for _, c := range []struct{ url, dialect, shown string }{
		{"sqlite:slots.db", "sqlite", "sqlite:slots.db"},
		{"sqlite:/var/lib/slots.db?synchronous=normal", "sqlite", "sqlite:/var/lib/slots.db"},
		{"sqlite::memory:", "sqlite", "sqlite::memory:"},
		{"postgres://u:secret@db.example:6432/slots?sslmode=require", "postgres", "postgres://db.example:6432/slots"},
		{"postgres://u:secret@a.example:6432,b.example:6433/slots", "postgres",
			"postgres://a.example:6432,b.example:6433/slots"},
		{"postgres://u:secret@a.example,b.example:6433/slots?target_session_attrs=primary", "postgres",
			"postgres://a.example:5432,b.example:6433/slots"},
		{"postgresql://db.example/slots?user=u&password=secret", "postgres", "postgres://db.example:5432/slots"},
		{"jdbc:postgresql://db.example:5432/slots?currentSchema=s&ssl=true", "postgres", "postgres://db.example:5432/slots"},
		{"mysql://u:secret@db.example/slots", "mysql", "mysql://db.example:3306/slots"},
		{"mariadb://u:secret@[::1]:3307/slots?tls=true", "mysql", "mariadb://[::1]:3307/slots"},
		{"mysql://u:secret@a.example:3307,b.example:3308/slots", "mysql", "mysql://a.example:3307,b.example:3308/slots"},
		{"mariadb://u:secret@a.example,b.example/slots", "mysql", "mariadb://a.example:3306,b.example:3306/slots"},
		{"mysql://u:secret@[::1]:3307,[::2],c.example:3308/slots", "mysql",
			"mysql://[::1]:3307,[::2]:3306,c.example:3308/slots"},
		{"mariadb://u:secret@a.example,[fe80::1%25eth0]:3307/slots?tls=true", "mysql",
			"mariadb://a.example:3306,[fe80::1%eth0]:3307/slots"},
		{"postgres://u:secret@[::1]:6432,[::2]/slots", "postgres", "postgres://[::1]:6432,[::2]:5432/slots"},
		{"jdbc:mysql://db.example:3306/slots?user=u&password=secret&useSSL=false", "mysql", "mysql://db.example:3306/slots"},
		{"jdbc:mariadb://db.example:3306/slots?sslMode=verify-full", "mysql", "mariadb://db.example:3306/slots"},
	} {
		d, src, err := parse(Config{URL: c.url})
		if err != nil || d.Name != c.dialect || src.shown != c.shown {
			t.Errorf("%s: %+v, %+v, %v; want %s %s", c.url, d, src, err, c.dialect, c.shown)
		}
	}
}

// Errors say what is wrong, and hold no password.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"", "want a scheme"},
		{"slots.db", "want a scheme"},
		{"db2://secret@host/x", `"db2"`},
		{"jdbc:sqlserver://host;password=secret", `"sqlserver"`},
		{"sqlite:", "want sqlite:PATH"},
		{"sqlite://x.db", "write sqlite:x.db"},
		{"sqlite:x?synchronous=off", "want full or normal"},
		{"sqlite:x?mode=ro", `"mode"`},
		{"postgres://u:se cret@host/x", "cannot be read"},
		{"postgres:///x?password=secret", "no host"},
		{"postgres://u:secret@host:99999999/x", "port"},
		{"postgres://u:secret@host/x?sslmode=maybe", "sslmode"},
		{"postgres://u:secret@host/x?target_session_attrs=standby",
			"target_session_attrs=standby: want read-write or primary"},
		{"postgres://u:secret@a,b/x?target_session_attrs=any", "target_session_attrs=any: want read-write or primary"},
		{"postgres://host/x?sslmode=maybe&password=secret", "sslmode"},
		{"mysql://u:secret@host:3306", "no database"},
		{"mysql://u:secret@a:3306,:3306/x", "no name"},
		{"mysql://u:secret@a,,b/x", "no name"},
		{"mysql://u:secret@[::1],[::zz]/x", "cannot be read"},
		{"mysql://u:secret@[::1],[::2/x", "cannot be read"},
		{"mysql://u:secret@a:1,b:secret/x", "cannot be read"},
		{"mysql://u:secret@host:3306/x?useUnicode=true", `"useUnicode"`},
		{"mysql://u:secret@host:3306/x?tls=secret", `"tls"`},
	} {
		_, _, err := parse(Config{URL: c.url})
		wantError(t, err, "database url", c.want)
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "se cret") {
			t.Errorf("%s: the error holds the password: %v", c.url, err)
		}
	}
	for _, c := range []Config{{PoolMin: -1}, {PoolMin: 3, PoolMax: 2}} {
		c.URL = "sqlite::memory:"
		_, _, err := parse(c)
		wantError(t, err, "database pool")
	}
}

func TestOpenWithoutDirectory(t *testing.T) {
	_, err := Open(Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "none", "slots.db")})
	wantError(t, err, "no directory", "none")
}

// Sessions read what was committed, whatever the server's defaults. Those of PostgreSQL
// prefer indexes and compile no statement.
func TestSessionsReadCommittedRows(t *testing.T) {
	db := mustOpen(t, Config{URL: testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("session")})
	if got := one(t, db.Read, "SHOW transaction_isolation"); got != "read committed" {
		t.Errorf("PostgreSQL: %s", got)
	}
	for _, setting := range []string{"enable_seqscan", "jit"} {
		if got := one(t, db.Read, "SHOW "+setting); got != "off" {
			t.Errorf("PostgreSQL: %s is %s, want off", setting, got)
		}
	}
	db = mustOpen(t, Config{URL: testenv.SharedDatabase(t, testenv.MariaDB).CreateDatabase("session")})
	if got := one(t, db.Read, "SELECT @@tx_isolation"); got != "READ-COMMITTED" {
		t.Errorf("MariaDB: %s", got)
	}
	if got := one(t, db.Read, "SELECT @@sql_mode"); !strings.Contains(got, "STRICT_TRANS_TABLES") {
		t.Errorf("MariaDB: sql_mode %s", got)
	}
}

// PgBouncer reports wrong logins as protocol violations. Retrying does not help.
func TestLoginsThatPgBouncerRefuses(t *testing.T) {
	server := testenv.SharedDatabase(t, testenv.Postgres)
	pooler := testenv.StartPgBouncer(t, server, "transaction")
	right := pooler.URLOf(server.URL())
	for _, wrong := range []string{
		strings.Replace(right, ":"+testenv.DatabasePassword+"@", ":wrong@", 1),
		strings.Replace(right, "//"+testenv.DatabaseUser+":", "//nobody:", 1),
		pooler.URLOf(server.URLOf("nowhere")),
	} {
		db := mustOpen(t, Config{URL: wrong})
		if _, err := db.Row(soon(t), db.Write, "ask", Query{Text: "SELECT 1"}, new(int)); err == nil ||
			KindOf(err) != Failed {
			t.Errorf("kind %v: %v", KindOf(err), err)
		}
	}
	db := mustOpen(t, Config{URL: right})
	one(t, db.Write, "SELECT 1")
	server = testenv.StartDatabase(t, testenv.Postgres)
	pooler = testenv.StartPgBouncer(t, server, "transaction", "server_login_retry = 0", "server_connect_timeout = 1",
		"query_wait_timeout = 1")
	server.Stop()
	down, err := url.Parse(pooler.URLOf(server.URL()))
	check(t, err)
	parameters := down.Query()
	parameters.Set("connect_timeout", "2") // PgBouncer looks for the server for longer
	down.RawQuery = parameters.Encode()
	db = mustOpen(t, Config{URL: down.String()})
	if _, err := db.Row(soon(t), db.Write, "ask", Query{Text: "SELECT 1"}, new(int)); err == nil || KindOf(err) == Failed {
		t.Errorf("without the server: kind %v: %v", KindOf(err), err)
	}
}

func mustOpen(t testing.TB, c Config) *DB {
	t.Helper()
	db, err := Open(c)
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
	return db
}
