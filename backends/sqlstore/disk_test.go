package sqlstore

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/test/testenv"
)

// The disk of a PostgreSQL is filled by somebody else: nothing is admitted that is not recorded, nothing is
// in doubt, and all goes on when there is room.
func TestFullDiskOfPostgres(t *testing.T) {
	pg := testenv.SharedDatabase(t, testenv.Postgres)
	dir, err := os.MkdirTemp("/tmp", "hg-disk-") // not t.TempDir, which another user cannot reach
	check(t, err)
	t.Cleanup(func() { _ = os.Remove(dir) })
	options := "size=20m,mode=0700"
	if account, err := user.Lookup("postgres"); err == nil && os.Getuid() == 0 {
		options += ",uid=" + account.Uid
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skip("no small disk can be had:", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	pg.ExecOn("postgres", "CREATE TABLESPACE small LOCATION '"+dir+"';")
	pg.ExecOn("postgres", "CREATE DATABASE small TABLESPACE small;")
	t.Cleanup(func() {
		pg.ExecOn("postgres", "DROP DATABASE small WITH (FORCE);")
		pg.ExecOn("postgres", "DROP TABLESPACE small;")
	})
	url := pg.URLOf("small")
	migrate(t, url)
	b := open(t, url)
	execute(t, b, "CREATE TABLE FILLER (T TEXT)")
	for n := 1 << 16; n > 0; { // numbers, which are not compressed
		_, err := b.db.Write.ExecContext(soon(t), fmt.Sprintf("INSERT INTO FILLER SELECT MD5(G::text) FROM generate_series(1, %d) AS G", n))
		if err != nil {
			n /= 2
		}
	}
	l := upTo(1_000_000)
	var y tally
	for n := 0; y.unknown.Load()+y.notApplied.Load() < 20 && n < 20_000; n++ {
		_ = y.take(t, b, 5*time.Second, ask(l, 1, "k", fmt.Sprint(strings.Repeat("long", 50), n)))
	}
	if y.notApplied.Load() < 20 || y.unknown.Load() > 0 {
		t.Fatalf("%d calls were refused by a full disk, and %d are in doubt", y.notApplied.Load(), y.unknown.Load())
	}
	execute(t, b, "DROP TABLE FILLER")
	testenv.Eventually(t, 10*time.Second, "go on when there is room", func() string {
		if err := y.take(t, b, 5*time.Second, ask(l, 1, "k", "new")); err != nil {
			return err.Error()
		}
		return ""
	})
	y.wantRecorded(t, used(t, b, l, "k"))
}

// A stopped process that holds the lock of a SQLite file blocks all writers. Calls of others fail within
// their deadlines with ErrNotApplied, and succeed again when that process has ended.
func TestStoppedHolderOfAFile(t *testing.T) {
	url := servers()[0].create(t)
	migrate(t, url)
	b := open(t, with(url, "timeout=500ms"))
	l := upTo(1_000_000)
	var y tally
	check(t, y.take(t, b, 10*time.Second, ask(l, 1, "hot")))
	h := startHolder(t, with(url, "timeout=1m"))
	check(t, h.cmd.Process.Signal(syscall.SIGSTOP))
	for range 3 {
		began := time.Now()
		err := y.take(t, b, 10*time.Second, ask(l, 1, "hot"))
		if !errors.Is(err, backends.ErrNotApplied) {
			t.Errorf("while the file is held: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a call of 500ms took %v", took)
		}
	}
	check(t, h.cmd.Process.Kill())
	testenv.Eventually(t, 10*time.Second, "go on without the process", func() string {
		if err := y.take(t, b, 5*time.Second, ask(l, 1, "hot")); err != nil {
			return err.Error()
		}
		return ""
	})
	y.wantRecorded(t, used(t, b, l, "hot"))
}
