package sqlstore

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/testenv"
	"github.com/headgate-rls/headgate/slots"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ url, dialect, shown string }{
		{"sqlite:slots.db", "sqlite", "sqlite:slots.db"},
		{"sqlite:/var/lib/slots.db?synchronous=normal", "sqlite", "sqlite:/var/lib/slots.db"},
		{"sqlite::memory:", "sqlite", "sqlite::memory:"},
		{"postgres://u:secret@db.example:6432/slots?sslmode=require", "postgres", "postgres://db.example:6432/slots"},
		{"postgres://u:secret@a.example:6432,b.example:6433/slots", "postgres", "postgres://a.example:6432/slots"},
		{"postgresql://db.example/slots?user=u&password=secret", "postgres", "postgres://db.example:5432/slots"},
		{"jdbc:postgresql://db.example:5432/slots?currentSchema=s&ssl=true", "postgres", "postgres://db.example:5432/slots"},
		{"mysql://u:secret@db.example/slots", "mysql", "mysql://db.example:3306/slots"},
		{"mariadb://u:secret@[::1]:3307/slots?tls=true", "mysql", "mariadb://[::1]:3307/slots"},
		{"jdbc:mysql://db.example:3306/slots?user=u&password=secret&useSSL=false", "mysql", "mysql://db.example:3306/slots"},
		{"jdbc:mariadb://db.example:3306/slots?sslMode=verify-full", "mysql", "mariadb://db.example:3306/slots"},
	} {
		got, err := Parse(Config{URL: c.url})
		if err != nil || got != (Address{c.dialect, c.shown}) {
			t.Errorf("%s: %+v, %v; want %s %s", c.url, got, err, c.dialect, c.shown)
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
		{"sqlite:x?synchronous=off", "want full or normal"},
		{"sqlite:x?mode=ro", `"mode"`},
		{"postgres://u:se cret@host/x", "cannot be read"},
		{"postgres:///x?password=secret", "no host"},
		{"postgres://u:secret@host:99999999/x", "port"},
		{"postgres://u:secret@host/x?sslmode=maybe", "sslmode"},
		{"postgres://host/x?sslmode=maybe&password=secret", "sslmode"},
		{"mysql://u:secret@host:3306", "no database"},
		{"mysql://u:secret@host:3306/x?useUnicode=true", `"useUnicode"`},
		{"mysql://u:secret@host:3306/x?tls=secret", `"tls"`},
	} {
		_, err := Parse(Config{URL: c.url})
		wantError(t, err, "database url", c.want)
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "se cret") {
			t.Errorf("%s: the error holds the password: %v", c.url, err)
		}
	}
	for _, c := range []Config{{PoolMin: -1}, {PoolMin: 3, PoolMax: 2}} {
		c.URL = "sqlite::memory:"
		_, err := Parse(c)
		wantError(t, err, "database pool")
	}
}

func TestOpenWithoutDirectory(t *testing.T) {
	_, err := Open(Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "none", "slots.db")})
	wantError(t, err, "no directory", "none")
}

// Two databases in memory are two databases, and each is one for all of its
// connections.
func TestMemory(t *testing.T) {
	a, b := migrated(t, "sqlite::memory:"), migrated(t, "sqlite::memory:")
	c := slots.Config{ID: "1", Name: "only a", Max: 1, SizeMs: 1000}
	_, err := a.PutConfig(soon(t), c, nowhere)
	check(t, err)
	if _, err := b.ActiveConfig(soon(t), c.Name); !errors.Is(err, slots.ErrConfigNotFound) {
		t.Errorf("b has what a was given: %v", err)
	}
	for range 20 {
		conn, err := a.pools.read.Conn(soon(t))
		check(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// A file keeps what was written, and two Opens of it see each other's writes.
func TestFile(t *testing.T) {
	address := "sqlite:" + filepath.Join(t.TempDir(), "slots.db")
	a, b := migrated(t, address), migrated(t, address)
	_, err := a.PutConfig(soon(t), slots.Config{ID: "1", Name: "both", Max: 1, SizeMs: 1000}, nowhere)
	check(t, err)
	if _, err := b.ActiveConfig(soon(t), "both"); err != nil {
		t.Error(err)
	}
	if mode := one(t, a.pools.write, "PRAGMA journal_mode") + one(t, a.pools.write, "PRAGMA synchronous"); mode != "wal2" {
		t.Errorf("journal and synchronous are %s, want wal and 2 (full)", mode)
	}
}

// User and password of the Config win over those of the URL.
func TestCredentials(t *testing.T) {
	eachServer(t, func(t *testing.T, address string) {
		u, err := url.Parse(address)
		check(t, err)
		name := u.User.Username()
		word, _ := u.User.Password()
		u.User = url.UserPassword("nobody", "wrong")
		db, err := Open(Config{URL: u.String(), Username: name, Password: word})
		check(t, err)
		_, err = db.Migrate(soon(t))
		check(t, err)
		check(t, db.Close())

		db, err = Open(Config{URL: u.String()})
		check(t, err)
		err = db.Ping(soon(t))
		if err == nil || slots.KindOf(err) != slots.Failed || strings.Contains(err.Error(), "wrong") {
			t.Errorf("with a wrong password: %v (%v)", err, slots.KindOf(err))
		}
		check(t, db.Close())
	})
}

// A server that is not there is unavailable, which Open does not mind.
func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	addr := l.Addr().String()
	check(t, l.Close())
	for _, scheme := range []string{"postgres", "mysql"} {
		db := mustOpen(t, scheme+"://u:secret@"+addr+"/slots")
		for what, err := range map[string]error{
			"ping":    db.Ping(soon(t)),
			"migrate": func() error { _, err := db.Migrate(soon(t)); return err }(),
			"begin":   func() error { _, err := db.Begin(soon(t), ""); return err }(),
		} {
			if err == nil || slots.KindOf(err) != slots.Unavailable || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s %s: %v (%v), want unavailable", scheme, what, err, slots.KindOf(err))
			}
		}
	}
}

// A caller that waits for a connection until its deadline gets the error that there
// are too few.
func TestNoConnectionToSpare(t *testing.T) {
	eachServer(t, func(t *testing.T, address string) {
		db, err := Open(Config{URL: address, PoolMax: 2})
		check(t, err)
		for range 2 {
			tx, err := db.Begin(soon(t), "")
			check(t, err)
			defer tx.Rollback()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		_, err = db.Begin(ctx, "")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || slots.KindOf(err) != slots.Unavailable {
			t.Errorf("got %v (%v)", err, slots.KindOf(err))
		}
		if p := db.Pool(); p.Max != 2 || p.InUse != 2 || p.Waits == 0 {
			t.Errorf("pool %+v", p)
		}
	})
}

// Ping opens the connections that are wanted at least.
func TestWarmUp(t *testing.T) {
	db, err := Open(Config{URL: testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("warm"), PoolMin: 4, PoolMax: 6})
	check(t, err)
	defer db.Close()
	_, err = db.Migrate(soon(t))
	check(t, err)
	check(t, db.Ping(soon(t)))
	for ctx := soon(t); db.Pool().Open < 4; {
		if ctx.Err() != nil {
			t.Fatalf("pool %+v", db.Pool())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Sessions read what was committed, whatever the server's defaults.
func TestSessions(t *testing.T) {
	db := mustOpen(t, testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("session"))
	if got := one(t, db.pools.read, "SHOW transaction_isolation"); got != "read committed" {
		t.Errorf("PostgreSQL: %s", got)
	}
	db = mustOpen(t, testenv.SharedDatabase(t, testenv.MariaDB).CreateDatabase("session"))
	if got := one(t, db.pools.read, "SELECT @@tx_isolation"); got != "READ-COMMITTED" {
		t.Errorf("MariaDB: %s", got)
	}
	if got := one(t, db.pools.read, "SELECT @@sql_mode"); !strings.Contains(got, "STRICT_TRANS_TABLES") {
		t.Errorf("MariaDB: sql_mode %s", got)
	}
}

// Nothing of this package is on disk where it was not asked for.
func TestMemoryLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	migrated(t, "sqlite::memory:")
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}
