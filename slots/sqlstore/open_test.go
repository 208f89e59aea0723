package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/testenv"
)

// Two databases in memory are two databases, and each is one for all of its
// connections.
func TestDatabasesInMemoryAreSeparate(t *testing.T) {
	a, b := migrated(t, "sqlite::memory:"), migrated(t, "sqlite::memory:")
	c := slots.Config{ID: "1", Name: "only a", Max: 1, SizeMs: 1000}
	_, err := a.PutConfig(soon(t), c, nowhere)
	check(t, err)
	if _, err := b.ActiveConfig(soon(t), c.Name); !errors.Is(err, slots.ErrConfigNotFound) {
		t.Errorf("b has what a was given: %v", err)
	}
	for range 20 {
		conn, err := a.sql.Read.Conn(soon(t))
		check(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// A file keeps what was written, and two Opens of it see each other's writes.
func TestFileKeepsWhatWasWritten(t *testing.T) {
	address := "sqlite:" + filepath.Join(t.TempDir(), "slots.db")
	a, b := migrated(t, address), migrated(t, address)
	_, err := a.PutConfig(soon(t), slots.Config{ID: "1", Name: "both", Max: 1, SizeMs: 1000}, nowhere)
	check(t, err)
	if _, err := b.ActiveConfig(soon(t), "both"); err != nil {
		t.Error(err)
	}
	if mode := one(t, a.sql.Write, "PRAGMA journal_mode") + one(t, a.sql.Write, "PRAGMA synchronous"); mode != "wal2" {
		t.Errorf("journal and synchronous are %s, want wal and 2 (full)", mode)
	}
}

// User and password of the Config win over those of the URL.
func TestCredentialsOfTheConfigWin(t *testing.T) {
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

// Open succeeds although the server is down; calls then fail as unavailable.
func TestServerThatIsDownIsUnavailable(t *testing.T) {
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
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
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
	db, err := Open(Config{URL: testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("warm"),
		PoolMin: 4, PoolMax: 6})
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

// Nothing of this package is on disk where it was not asked for.
func TestMemoryLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	migrated(t, "sqlite::memory:")
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}

// TestReadOnlyDatabaseIsNotReady: a replica, or a primary that has become one, answers questions, and assigns no slot.
func TestReadOnlyDatabaseIsNotReady(t *testing.T) {
	for _, c := range []struct{ engine, readOnly string }{
		{testenv.Postgres, "ALTER SYSTEM SET default_transaction_read_only = on;\nSELECT pg_reload_conf();"},
		// A user who may do everything may also write then.
		{testenv.MariaDB, "CREATE USER plain IDENTIFIED BY 'plain';\nGRANT ALL ON `slots%`.* TO plain;\n" +
			"SET GLOBAL read_only = ON;"},
	} {
		t.Run(c.engine, func(t *testing.T) {
			t.Parallel()
			server := testenv.StartDatabase(t, c.engine)
			address := server.CreateDatabase("slots")
			check(t, migrated(t, address).Ping(soon(t)))
			server.Exec(c.readOnly)
			if c.engine == testenv.MariaDB {
				u, err := url.Parse(address)
				check(t, err)
				u.User = url.UserPassword("plain", "plain")
				address = u.String()
			}
			db := mustOpen(t, address)
			testenv.Eventually(t, 10*time.Second, "the ping fails", func() string {
				if err := db.Ping(soon(t)); err == nil || !strings.Contains(err.Error(), "read-only") {
					return fmt.Sprint("it returns ", err)
				}
				return ""
			})
			check(t, db.Look(soon(t)))
		})
	}
}
