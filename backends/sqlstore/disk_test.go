package sqlstore

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// The disk of a PostgreSQL is filled by somebody else: nothing is admitted that is not recorded, nothing is
// in doubt, and all goes on when there is room.
func TestFullDiskOfPostgres(t *testing.T) {
	pg := testenv.SharedDatabase(t, testenv.Postgres)
	disk := testenv.NewDisk(t, testenv.Postgres, 20)
	pg.ExecOn("postgres", "CREATE TABLESPACE small LOCATION '"+disk.Dir+"';")
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
		_, err := b.db.Write.ExecContext(soon(t),
			fmt.Sprintf("INSERT INTO FILLER SELECT MD5(G::text) FROM generate_series(1, %d) AS G", n))
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

// The disk of a MariaDB is full. Without a binary log it refuses what wants more room, and all is as with
// PostgreSQL.
func TestFullDiskOfMariaDB(t *testing.T) {
	disk := testenv.NewDisk(t, testenv.MariaDB, 64)
	server := testenv.StartDatabase(t, testenv.MariaDB, testenv.Durable(), testenv.WithData(disk.Dir))
	address := server.CreateDatabase("limits")
	migrate(t, address)
	b := open(t, address)
	l := upTo(1_000_000)
	disk.Fill()
	var y tally
	long := func(n int) limit.Request { return ask(l, 1, "k", fmt.Sprint(strings.Repeat("long", 50), n)) }
	for n := 0; y.unknown.Load()+y.notApplied.Load() < 20 && n < 20_000; n++ {
		if err := y.take(t, b, 5*time.Second, long(n)); err != nil && (!strings.Contains(err.Error(), "full") ||
			strings.Contains(err.Error(), "migrate")) {
			t.Errorf("an error does not say that the disk is full, or something else: %v", err)
		}
	}
	if y.admitted.Load() == 0 || y.notApplied.Load() < 20 || y.unknown.Load() > 0 {
		t.Fatalf("%d calls were admitted, %d were refused by a full disk, and %d are in doubt", y.admitted.Load(),
			y.notApplied.Load(), y.unknown.Load())
	}
	disk.Free()
	testenv.Eventually(t, 10*time.Second, "go on when there is room", func() string {
		if err := y.take(t, b, 5*time.Second, long(-1)); err != nil {
			return err.Error()
		}
		return ""
	})
	server.Restart() // what is in memory alone is gone
	y.wantRecorded(t, used(t, b, l, "k"))
}

// mostHanging are the sessions that one process may leave behind while commits hang: that of a call, and of
// beats one that hangs and those of a second, which wait for its row.
const mostHanging = 14

// With a binary log, commits hang on a full disk, in MariaDB and in MySQL, and for up to a minute after there
// is room. Calls end by their deadlines all the same, and do not use up the sessions of the server.
func TestFullDiskWithBinaryLog(t *testing.T) {
	t.Parallel()
	for _, engine := range []struct {
		name      string
		mebibytes int
	}{{testenv.MariaDB, 80}, {testenv.MySQL, 240}} {
		t.Run(engine.name, func(t *testing.T) {
			whole := random.Long()
			if !whole && engine.name == testenv.MySQL {
				t.Skip("only in the long form: a MySQL takes seconds to start")
			}
			const timeout = 200 * time.Millisecond
			disk := testenv.NewDisk(t, engine.name, engine.mebibytes)
			server := testenv.StartDatabase(t, engine.name, testenv.Durable(), testenv.WithData(disk.Dir),
				testenv.WithSettings("--log-bin=binlog", "--server-id=1", "--binlog-format=ROW"))
			address := server.CreateDatabase("limits")
			migrate(t, address)
			b := open(t, with(address, "timeout="+timeout.String()))
			l := upTo(1_000_000)
			var y tally
			check(t, y.take(t, b, 5*time.Second, ask(l, 1, "k")))
			disk.Fill()
			for n := range 28 { // each with a row that no other waits for
				began := time.Now()
				err := y.take(t, b, 5*time.Second, ask(l, 1, fmt.Sprint("new", n)))
				if took := time.Since(began); err == nil || took > timeout+2*time.Second {
					t.Fatalf("call %d on a full disk took %v: %v", n, took, err)
				}
			}
			if y.unknown.Load() == 0 || y.notApplied.Load() < 20 {
				t.Errorf("%d calls are in doubt, and %d not applied", y.unknown.Load(), y.notApplied.Load())
			}
			if n := strings.Count(server.Exec("SHOW PROCESSLIST"), "limits"); n > mostHanging {
				t.Errorf("%d sessions hang on the server, want %d at most", n, mostHanging)
			}
			if !whole {
				return // the server would wait for up to a minute
			}
			disk.Free()
			testenv.Eventually(t, 90*time.Second, "go on when there is room", func() string {
				if err := y.take(t, b, 5*time.Second, ask(l, 1, "k")); err != nil {
					return err.Error()
				}
				return ""
			})
			server.Restart()
			b, recorded := open(t, address), int64(0)
			for n := range 28 {
				recorded += used(t, b, l, fmt.Sprint("new", n))
			}
			y.wantRecorded(t, recorded+used(t, b, l, "k"))
		})
	}
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
