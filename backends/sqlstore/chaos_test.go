package sqlstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A tally is what callers of one key were told.
type tally struct{ admitted, refused, unknown, notApplied atomic.Int64 }

// take sends one request and counts the answer.
func (y *tally) take(t *testing.T, b *Backend, within time.Duration, req limit.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	v := try(ctx, b, req)[0]
	switch {
	case v.Err == nil && v.Admitted:
		y.admitted.Add(1)
	case v.Err == nil:
		y.refused.Add(1)
	case !errors.Is(v.Err, backends.ErrUnavailable):
		t.Errorf("an error of no kind: %v", v.Err)
	case errors.Is(v.Err, backends.ErrNotApplied):
		y.notApplied.Add(1)
	default:
		y.unknown.Add(1)
	}
	return v.Err
}

// wantRecorded: what was admitted is there, and beside it at most what nobody knows of.
func (y *tally) wantRecorded(t *testing.T, recorded int64) {
	t.Helper()
	t.Logf("%d admitted, %d refused, %d unknown, %d certainly not applied; %d recorded",
		y.admitted.Load(), y.refused.Load(), y.unknown.Load(), y.notApplied.Load(), recorded)
	if least, most := y.admitted.Load(), y.admitted.Load()+y.unknown.Load(); recorded < least || recorded > most {
		t.Errorf("%d units are recorded, want %d to %d", recorded, least, most)
	}
}

const holdURL = "HEADGATE_TEST_SQL_HOLD"

// TestHolderLocksUntilInputEnds is another process: it locks the row of the group "hot" and
// stands still until its standard input ends. Then it commits, and says what came of it.
func TestHolderLocksUntilInputEnds(t *testing.T) {
	url := os.Getenv(holdURL)
	if url == "" {
		t.Skip("one of several processes")
	}
	b := open(t, url)
	key := counterKey(limit.Key{Group: "hot", Limit: "l"})
	err := b.do(context.Background(), "hold",
		&plain{keys: [][]byte{key}, then: func(_ [][]byte, now limit.Instant) ([]row, [][]byte) {
			fmt.Println("holding")
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			return []row{{key: key, state: []byte("never to be seen"), ends: now + 1<<40}}, nil
		}})
	fmt.Println("came of it:", err)
}

// A holder is such a process.
type holder struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

func startHolder(t *testing.T, url string) *holder {
	t.Helper()
	exe, err := os.Executable()
	check(t, err)
	h := &holder{cmd: exec.Command(exe, "-test.run=^TestHolderLocksUntilInputEnds$", "-test.count=1")}
	h.cmd.Env = append(os.Environ(), holdURL+"="+url)
	read, write, err := os.Pipe()
	check(t, err)
	h.cmd.Stdin, h.in = read, write
	out, err := h.cmd.StdoutPipe()
	check(t, err)
	h.out = bufio.NewScanner(out)
	check(t, h.cmd.Start())
	_ = read.Close()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		_ = h.in.Close()
		_ = h.cmd.Wait()
	})
	h.says(t, "holding")
	return h
}

// says waits for a line and returns it.
func (h *holder) says(t *testing.T, start string) string {
	t.Helper()
	for h.out.Scan() {
		if strings.HasPrefix(h.out.Text(), start) {
			return h.out.Text()
		}
	}
	t.Fatalf("the process has ended without saying %q", start)
	return ""
}

// A process that is stopped while it holds a hot key keeps others from it for about a second, except
// on MySQL, where they get errors within their deadlines. When it goes on it has changed nothing.
func TestStoppedHolderDelaysOthersBriefly(t *testing.T) {
	for _, c := range []struct {
		name string
		url  func(t *testing.T) string
		ends bool // by the server
	}{
		{testenv.Postgres, func(t *testing.T) string {
			return testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("limits")
		}, true},
		{"pgbouncer", func(t *testing.T) string {
			pg := testenv.SharedDatabase(t, testenv.Postgres)
			return testenv.StartPgBouncer(t, pg, testenv.PoolTransaction).URLOf(pg.CreateDatabase("limits"))
		}, true},
		{testenv.MariaDB, func(t *testing.T) string {
			return testenv.SharedDatabase(t, testenv.MariaDB).CreateDatabase("limits")
		}, true},
		{testenv.MySQL, func(t *testing.T) string {
			return testenv.SharedDatabase(t, testenv.MySQL).CreateDatabase("limits")
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == testenv.MySQL && !random.Long() {
				t.Skip("only in the long form: it holds the row as long as the test lets it")
			}
			url := c.url(t)
			migrate(t, url)
			b := open(t, with(url, "timeout=500ms"))
			l := upTo(1_000_000)
			var y tally
			for range 3 { // connects
				_ = y.take(t, b, 10*time.Second, ask(l, 1, "hot"))
			}
			h := startHolder(t, with(url, "timeout=1m"))
			check(t, h.cmd.Process.Signal(syscall.SIGSTOP))
			stopped := time.Now()
			unclear := int64(0) // before the last of the calls that failed
			for time.Since(stopped) < 4*time.Second {
				before := y.unknown.Load()
				if y.take(t, b, 500*time.Millisecond, ask(l, 1, "hot")) == nil {
					break
				}
				unclear = before
				if n := used(t, b, l, "cold"); n != 0 {
					t.Errorf("another key has %d units", n)
				}
			}
			switch held := time.Since(stopped); {
			case c.ends && held > 3*time.Second: // a second and a half, and what a busy machine takes
				t.Errorf("the row was held for %v", held)
			case !c.ends && held < 4*time.Second:
				t.Errorf("the row was held for %v only: this server ends such sessions, too; say so in README.md", held)
			}
			if !c.ends {
				unclear = y.unknown.Load()
			}
			// The server may end the session when the last call has too little time left to commit.
			if unclear > 0 {
				t.Errorf("%d calls that waited for a lock do not know that they were not applied", unclear)
			}
			check(t, h.cmd.Process.Signal(syscall.SIGCONT))
			if c.ends {
				_ = h.in.Close()
				if said := h.says(t, "came of it:"); !strings.Contains(said, "backend unavailable") {
					t.Errorf("the process that stood still %s", said)
				}
			} else {
				check(t, h.cmd.Process.Kill())
				for y.take(t, b, 500*time.Millisecond, ask(l, 1, "hot")) != nil {
					if time.Since(stopped) > 30*time.Second {
						t.Fatal("the row is held although its process is gone")
					}
				}
			}
			y.wantRecorded(t, used(t, b, l, "hot"))
		})
	}
}

// A cutter stands between a client and a server, and ends a connection in the round trip of a number:
// before what one of the sides says arrives.
type cutter struct {
	addr string
	mu   sync.Mutex
	from byte // 'c' or 's'
	left int  // trips
	last byte // who spoke last
}

func startCutter(t *testing.T, server string) *cutter {
	t.Helper()
	c := &cutter{}
	c.addr = dbtest.Relay(t, server, func() func(bool) bool { return c.pass })
	return c
}

func (c *cutter) pass(client bool) bool {
	side := byte('s')
	if client {
		side = 'c'
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if side == 'c' && c.last != 'c' {
		c.left--
	}
	c.last = side
	if c.from != side || c.left > 0 {
		return true
	}
	c.from = 0
	return false
}

func (c *cutter) arm(side byte, trip int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.from, c.left, c.last = side, trip, 's'
}

// A connection that is cut before the second round trip has changed nothing, and one that is cut
// when it is answered has: neither is recorded twice, and the second is not called "not applied".
func TestCutAtTheCommit(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		cut := startCutter(t, hostOf(t, url))
		b, direct := open(t, through(t, url, cut.addr)), open(t, url)
		b.db.Write.SetMaxOpenConns(1)
		l := upTo(1_000_000)
		for range 3 { // connects, and makes statements known
			check(t, try(soon(t), b, ask(l, 1, "k"))[0].Err)
		}
		recorded := int64(3)
		for _, c := range []struct {
			side    byte
			trip    int
			what    string
			err     bool // or the call is repeated
			applied int64
		}{
			{'c', 1, "the first trip is lost", false, 1},
			{'s', 1, "the first answer is lost", false, 1},
			{'c', 2, "the commit is lost", true, 0},
			{'s', 2, "the answer to the commit is lost", true, 1},
		} {
			for range 3 {
				cut.arm(c.side, c.trip)
				err := try(soon(t), b, ask(l, 1, "k"))[0].Err
				cut.arm(0, 0)
				if (err != nil) != c.err || errors.Is(err, backends.ErrNotApplied) ||
					err != nil && !errors.Is(err, backends.ErrUnavailable) {
					t.Errorf("%s: %v", c.what, err)
				}
				recorded += c.applied
				eventually(t, func() bool { return used(t, direct, l, "k") >= recorded })
				if n := used(t, direct, l, "k"); n != recorded {
					t.Fatalf("%s: %d units are recorded, want %d", c.what, n, recorded)
				}
				check(t, try(soon(t), b, ask(l, 1, "k"))[0].Err) // connects again, and makes statements known
				recorded++
			}
		}
	})
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return // the caller says what is wrong
		}
	}
}

// While the server is killed, stopped and started again under load, nothing that was admitted is
// lost, nothing is recorded twice, and the limit holds.
func TestServerUnderLoad(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			if testing.Short() && engine != testenv.Postgres {
				t.Skip("takes ten seconds")
			}
			server := testenv.StartDatabase(t, engine, testenv.Durable())
			url := server.CreateDatabase("limits")
			migrate(t, url)
			const most = 1500
			l := upTo(most)
			var y tally
			ctx, stop := context.WithCancel(soon(t))
			var callers sync.WaitGroup
			for range 3 {
				b := open(t, with(url, "timeout=300ms"))
				for i := range 3 {
					callers.Go(func() {
						for n := 0; ctx.Err() == nil; n++ {
							_ = y.take(t, b, 300*time.Millisecond, ask(l, 1, "hot", fmt.Sprint("new", i, n)))
							time.Sleep(2 * time.Millisecond)
						}
					})
				}
			}
			for range random.Times(1, 2) {
				time.Sleep(500 * time.Millisecond)
				server.Kill()
				time.Sleep(200 * time.Millisecond)
				server.Restart()
				time.Sleep(500 * time.Millisecond)
				server.Pause()
				time.Sleep(700 * time.Millisecond)
				server.Resume()
			}
			time.Sleep(time.Second)
			stop()
			callers.Wait()
			if y.admitted.Load() == 0 || y.unknown.Load()+y.notApplied.Load() == 0 {
				t.Error("there was no load, or nothing failed")
			}
			recorded := used(t, open(t, url), l, "hot")
			y.wantRecorded(t, recorded)
			if recorded > most {
				t.Errorf("%d of %d are recorded", recorded, most)
			}
		})
	}
}

const crowdURL = "HEADGATE_TEST_SQL_CROWD"

// TestCrowdTakesUntilInputEnds is one of three processes: it takes from the group "hot"
// until its input ends, and says each admission before it asks for the next one.
func TestCrowdTakesUntilInputEnds(t *testing.T) {
	url := os.Getenv(crowdURL)
	if url == "" {
		t.Skip("one of several processes")
	}
	b := open(t, url)
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	l := upTo(crowdMax)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		v := try(soon(t), b, ask(l, 1, "hot"))[0]
		switch {
		case v.Err != nil:
			fmt.Println("error:", v.Err)
		case v.Admitted:
			fmt.Println("admitted")
		default:
			fmt.Println("full")
			return
		}
	}
}

const crowdMax = 900

// Three processes use a limit up, exactly, although one of them is killed on the way: the others get
// what is left, except for units whose answer the killed process did not receive.
func TestKilledProcessLosesAtMostOneUnit(t *testing.T) {
	all := servers()
	for _, s := range append(all, relaxed(all[0])) {
		t.Run(s.name, func(t *testing.T) {
			url := s.create(t)
			migrate(t, url)
			exe, err := os.Executable()
			check(t, err)
			var admitted [3]int
			var all sync.WaitGroup
			var ready sync.WaitGroup
			start := make(chan struct{})
			for i := range 3 {
				ready.Add(1)
				all.Go(func() {
					cmd := exec.Command(exe, "-test.run=^TestCrowdTakesUntilInputEnds$", "-test.count=1")
					cmd.Env = append(os.Environ(), crowdURL+"="+url)
					in, err := cmd.StdinPipe()
					check(t, err)
					out, err := cmd.StdoutPipe()
					check(t, err)
					check(t, cmd.Start())
					defer func() { _ = cmd.Wait() }()
					for lines := bufio.NewScanner(out); lines.Scan(); {
						switch line := lines.Text(); {
						case line == "ready":
							ready.Done()
							<-start
							fmt.Fprintln(in)
						case line == "admitted":
							admitted[i]++
							if i == 0 && admitted[0] == crowdMax/10 {
								_ = cmd.Process.Kill()
							}
						case strings.HasPrefix(line, "error"):
							t.Errorf("process %d: %s", i, line)
						}
					}
				})
			}
			ready.Wait()
			close(start)
			all.Wait()
			sum := admitted[0] + admitted[1] + admitted[2]
			t.Logf("admitted: %v", admitted)
			if sum > crowdMax || sum < crowdMax-1 {
				t.Errorf("%d were admitted in all, want %d, or one less that nobody heard of", sum, crowdMax)
			}
			if n := used(t, open(t, url), upTo(crowdMax), "hot"); n != crowdMax {
				t.Errorf("%d are recorded, want %d", n, crowdMax)
			}
		})
	}
}

// With a full disk nothing is admitted that is not recorded, and all goes on when there is room.
func TestFullDiskAdmitsNothingUnrecorded(t *testing.T) {
	testenv.UseSQLite(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("no small disk can be had:", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	url := "sqlite:" + filepath.Join(dir, "limits.db")
	migrate(t, url)
	b := openURL(t, url)
	l := upTo(1_000_000)
	var y tally
	for n := 0; y.unknown.Load()+y.notApplied.Load() < 20 && n < 20_000; n++ {
		_ = y.take(t, b, 5*time.Second, ask(l, 1, "k", fmt.Sprint(strings.Repeat("long", 30), n)))
	}
	if y.admitted.Load() == 0 || y.unknown.Load()+y.notApplied.Load() < 20 {
		t.Fatalf("the disk did not fill up: %d admitted", y.admitted.Load())
	}
	check(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=16m"))
	for range 10 {
		check(t, y.take(t, b, 5*time.Second, ask(l, 1, "k")))
	}
	y.wantRecorded(t, used(t, b, l, "k"))
	check(t, b.Close())
}

// Behind PgBouncer all is as without it, in both modes.
func TestPgBouncerChangesNothing(t *testing.T) {
	for _, mode := range []string{testenv.PoolSession, testenv.PoolTransaction} {
		t.Run(mode, func(t *testing.T) {
			pg := testenv.SharedDatabase(t, testenv.Postgres)
			url := testenv.StartPgBouncer(t, pg, mode).URLOf(pg.CreateDatabase("limits"))
			migrate(t, url)
			// Transactions are the mode that differs more.
			if !testing.Short() && (mode == testenv.PoolTransaction || random.Long()) {
				s := suite(t, url)
				s.Rounds, s.Short = 3, true
				backendtest.Run(t, s)
			}
			b := open(t, with(url, "commit=relaxed&timeout=800ms"))
			check(t, b.Ping(soon(t)))
			tx, err := b.db.Begin(soon(t), "look")
			check(t, err)
			defer tx.Rollback()
			var lock, idle, commit string
			_, err = tx.Run(soon(t), "look", sqldb.Query{To: []any{&lock, &idle, &commit},
				Text: "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'), " +
					"current_setting('synchronous_commit')"})
			check(t, err)
			if lock != "200ms" || idle != "1s" || commit != "off" {
				t.Errorf("a transaction has lock_timeout %s, idle_in_transaction_session_timeout %s, synchronous_commit %s", lock,
					idle, commit)
			}
		})
	}
}

// Requests over several new keys, in orders that cross, end in no deadlock that a caller sees.
func TestCrossingKeysEndInNoDeadlock(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		const handles, callers, calls = 3, 3, 15
		l := upTo(1_000_000)
		var all sync.WaitGroup
		for h := range handles {
			b := open(t, with(url, "in_flight=4"))
			for c := range callers {
				r := random.Rand(t, uint64(h*callers+c))
				all.Go(func() {
					for range calls {
						var groups []string
						for _, g := range r.Perm(60)[:8] {
							groups = append(groups, fmt.Sprint("g", g))
						}
						if err := try(soon(t), b, ask(l, 1, groups...))[0].Err; err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		b, sum := open(t, url), int64(0)
		for g := range 60 {
			sum += used(t, b, l, fmt.Sprint("g", g))
		}
		if want := int64(handles * callers * calls * 8); sum != want {
			t.Errorf("%d units are recorded, want %d", sum, want)
		}
	})
}
