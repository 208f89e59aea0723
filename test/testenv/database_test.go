package testenv

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
)

// databaseCase is what differs between the makes of servers in these tests.
type databaseCase struct {
	engine string
	// version is how the version begins.
	version string
	// settings changes the time zone; zone is the question for it and zoneIs
	// the answer.
	settings, zone, zoneIs string
	// flush is the question for the flush at commit.
	flush, fast, durable string
	scheme               string
}

func databaseCases() map[string]databaseCase {
	return map[string]databaseCase{
		Postgres: {
			engine:   Postgres,
			version:  "15.",
			settings: "timezone='America/New_York'", zone: "SHOW timezone;", zoneIs: "America/New_York",
			flush: "SHOW fsync;", fast: "off", durable: "on",
			scheme: "postgres://",
		},
		MariaDB: {
			engine:   MariaDB,
			version:  "10.",
			settings: "--default-time-zone=-05:00", zone: "SELECT @@time_zone;", zoneIs: "-05:00",
			flush: "SELECT @@innodb_flush_log_at_trx_commit;", fast: "2", durable: "1",
			scheme: "mysql://",
		},
		MySQL: {
			engine:   MySQL,
			version:  "", // that of the day
			settings: "--default-time-zone=-05:00", zone: "SELECT @@time_zone;", zoneIs: "-05:00",
			flush: "SELECT @@innodb_flush_log_at_trx_commit;", fast: "2", durable: "1",
			scheme: "mysql://",
		},
	}
}

func (c databaseCase) start(tb TB, opts ...DatabaseOption) *Database {
	return StartDatabase(tb, c.engine, opts...)
}

func (c databaseCase) shared(tb TB) *Database { return SharedDatabase(tb, c.engine) }

// eachDatabase runs a test for every make of server at the same time.
func eachDatabase(t *testing.T, f func(*testing.T, databaseCase)) {
	t.Parallel()
	for name, c := range databaseCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, c)
		})
	}
}

func TestDatabaseSettings(t *testing.T) {
	eachDatabase(t, func(t *testing.T, c databaseCase) {
		d := c.start(t, Durable(), WithSettings(c.settings))
		if !strings.HasPrefix(d.Version, c.version) || !regexp.MustCompile(`^\d+\.\d+\.?\d*`).MatchString(d.Version) {
			t.Errorf("the version is %q, want %s", d.Version, c.version)
		}
		if want := c.scheme + "app:apppw@" + d.Addr + "/app"; !strings.HasPrefix(d.URL(), want) {
			t.Errorf("the URL is %s, want %s", d.URL(), want)
		}
		if got := d.Exec(c.zone); got != c.zoneIs {
			t.Errorf("the time zone is %q, want %q: settings are lost", got, c.zoneIs)
		}
		if got := d.Exec(c.flush); got != c.durable {
			t.Errorf("a durable server answers %q, want %q", got, c.durable)
		}
		if got := c.shared(t).Exec(c.flush); got != c.fast {
			t.Errorf("a fast server answers %q, want %q", got, c.fast)
		}
		if fatal := pretend(t, func(tb TB) { c.shared(tb).Exec("SELECT * FROM missing_one;") }).fatal; !strings.Contains(
			fatal, "missing_one") {
			t.Errorf("a wrong statement ends the test with %q", fatal)
		}
	})
}

// Servers that shared one would remove each other's temporary tables.
func TestDatabaseTemporaryFiles(t *testing.T) {
	for _, engine := range []string{MariaDB, MySQL} {
		t.Run(engine, func(t *testing.T) {
			d := SharedDatabase(t, engine)
			if got := d.Exec("SELECT @@tmpdir;"); got != d.server.dir {
				t.Errorf("temporary files are in %q, want %q", got, d.server.dir)
			}
		})
	}
}

// A replica follows, until it asks its primary for nothing any more. Promoted, it takes writes.
func TestReplica(t *testing.T) {
	for _, engine := range []string{Postgres, MariaDB, MySQL} {
		t.Run(engine, func(t *testing.T) {
			if engine == MySQL && random.Times(0, 1) == 0 {
				t.Skip("only in the long form: two MySQLs take seconds to start")
			}
			primary := StartDatabase(t, engine, Primary())
			primary.Exec("CREATE TABLE t (n INT);")
			replica := primary.StartReplica(true)
			primary.Exec("INSERT INTO t VALUES (1);")
			replica.Eventually(DatabaseName, "SELECT n FROM t;", "1")
			replica.StopFollowing()
			primary.Kill()
			replica.Promote()
			replica.Exec("INSERT INTO t VALUES (3);")
			if got := replica.Exec("SELECT n FROM t ORDER BY n;"); got != "1\n3" {
				t.Errorf("the replica has %q, want 1 and 3", got)
			}
		})
	}
}

// What was committed is there after a crash, also on a fast server.
func TestDatabaseKillAndRestart(t *testing.T) {
	eachDatabase(t, func(t *testing.T, c databaseCase) {
		d := c.start(t)
		d.Exec("CREATE TABLE t (n INT);")
		kills := random.Times(1, 3)
		for range kills {
			d.Exec("INSERT INTO t VALUES (1);")
			d.Kill()
			if d.Running() {
				t.Error("a killed server runs")
			}
			if conn, err := net.DialTimeout("tcp", d.Addr, time.Second); err == nil {
				conn.Close()
				t.Error("a killed server accepts connections")
			}
			d.Restart()
		}
		if got := d.Exec("SELECT COUNT(*) FROM t;"); got != strconv.Itoa(kills) {
			t.Errorf("%s rows are left of %d", got, kills)
		}
		d.Restart() // one that runs
		if got := d.Exec("SELECT COUNT(*) FROM t;"); got != strconv.Itoa(kills) {
			t.Errorf("%s rows are left of %d", got, kills)
		}
		d.Stop()
	})
}

func TestDatabasePause(t *testing.T) {
	eachDatabase(t, func(t *testing.T, c databaseCase) {
		d := c.start(t)
		d.Exec("CREATE TABLE t (n INT); INSERT INTO t VALUES (7);")
		d.Pause()
		answer := make(chan string, 1)
		go func() {
			out, err := d.server.run(DatabaseName, "SELECT n FROM t;")
			if err != nil {
				out = err.Error()
			}
			answer <- out
		}()
		select {
		case got := <-answer:
			t.Errorf("a paused server answers %q", got)
		case <-time.After(300 * time.Millisecond):
		}
		d.Resume()
		if got := <-answer; got != "7" {
			t.Errorf("after the pause the answer is %q, want 7", got)
		}
		d.Pause()
		d.Stop() // a frozen server can be stopped too
	})
}

// A frozen PostgreSQL must not answer on connections that are open already: the
// process that serves each of them is frozen with it.
func TestPostgresPausesSessions(t *testing.T) {
	t.Parallel()
	d := StartDatabase(t, Postgres)
	cmd := psql(d.server, DatabaseName)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	answers := make(chan string)
	go func() {
		defer close(answers)
		for s := bufio.NewScanner(out); s.Scan(); {
			answers <- s.Text()
		}
	}()
	ask := func(sql string) {
		if _, err := io.WriteString(in, sql+";\n"); err != nil {
			t.Fatal(err)
		}
	}
	ask("SELECT 1")
	if got := <-answers; got != "1" {
		t.Fatalf("the session answers %q", got)
	}
	d.Pause()
	ask("SELECT 2")
	select {
	case got := <-answers:
		t.Errorf("the session of a paused server answers %q", got)
	case <-time.After(300 * time.Millisecond):
	}
	d.Resume()
	if got := <-answers; got != "2" {
		t.Errorf("after the pause the session answers %q", got)
	}
}

func TestSharedDatabase(t *testing.T) {
	eachDatabase(t, func(t *testing.T, c databaseCase) {
		one, two := c.shared(t), c.shared(t)
		if one.server != two.server {
			t.Error("two tests got different servers")
		}
		nameOf := func(url string) string {
			_, name, _ := strings.Cut(url, one.Addr+"/")
			name, _, _ = strings.Cut(name, "?")
			return name
		}
		a, b := nameOf(one.CreateDatabase("same")), nameOf(two.CreateDatabase("same"))
		if a == b || !strings.HasPrefix(a, "same_") {
			t.Fatalf("the databases are called %q and %q", a, b)
		}
		one.ExecOn(a, "CREATE TABLE t (n INT); INSERT INTO t VALUES (1);")
		two.ExecOn(b, "CREATE TABLE t (n INT);")
		if got := two.ExecOn(b, "SELECT COUNT(*) FROM t;"); got != "0" {
			t.Errorf("a database shows %s rows of another", got)
		}

		var gone string
		t.Run("dropped", func(t *testing.T) { gone = nameOf(c.shared(t).CreateDatabase("gone")) })
		if fatal := pretend(t, func(tb TB) { c.shared(tb).ExecOn(gone, "SELECT 1;") }).fatal; !strings.Contains(fatal, gone) {
			t.Errorf("the database of a test that is over is still there: %q", fatal)
		}
		if fatal := pretend(t, func(tb TB) { c.shared(tb).CreateDatabase("Robert'); --") }).fatal; !strings.Contains(fatal,
			"lower-case") {
			t.Errorf("a bad name ends the test with %q", fatal)
		}
	})
}

func TestSharedDatabaseIsNotKilled(t *testing.T) {
	t.Parallel()
	tb := &refusals{T: t}
	s := &Database{tb: tb, server: SharedDatabase(t, Postgres).server, shared: true}
	s.Kill()
	s.Pause()
	s.Restart()
	if len(tb.errors) != 3 || !s.Running() {
		t.Errorf("the refusals are %q and running is %v", tb.errors, s.Running())
	}
}

// refusals notes the errors of a test instead of failing it.
type refusals struct {
	*testing.T
	errors []string
}

func (r *refusals) Errorf(format string, _ ...any) { r.errors = append(r.errors, format) }

func TestMariaDBOracleMode(t *testing.T) {
	report := t.TempDir()
	t.Setenv(EnvReport, report)
	s := SharedDatabase(t, MariaDB)
	mode := OracleMode(t, s)
	got := s.ExecOn("mysql", "SET SESSION sql_mode='"+mode+"';\nSELECT NVL(NULL,'x') || 'y' FROM DUAL;\n"+
		"SELECT '' IS NULL;")
	if got != "xy\n1" {
		t.Errorf("Oracle's dialect gives %q", got)
	}
	notes, err := readNotes(report, MariaDBOracle+noteRan)
	if err != nil || len(notes) != 1 {
		t.Errorf("the report holds %q (%v), want one note", notes, err)
	}
}

// TestDatabasesEndWithTheTestProcess runs this test once more as a process of its
// own that starts servers and ends without any cleanup: neither they nor their
// data may stay.
func TestDatabasesEndWithTheTestProcess(t *testing.T) {
	if file := os.Getenv("TESTENV_DATABASES"); file != "" {
		var left []string
		for name, c := range databaseCases() {
			if !slices.Contains(Installable(), name) {
				continue
			}
			d := c.shared(t)
			left = append(left, fmt.Sprintf("%d %s", d.server.process().cmd.Process.Pid, d.server.dir))
		}
		if err := os.WriteFile(file, []byte(strings.Join(left, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	}
	t.Parallel()
	Require(t, Postgres)
	Require(t, MariaDB)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child's life to its parent's")
	}
	file := filepath.Join(t.TempDir(), "dirs")
	cmd := exec.Command(os.Args[0], "-test.run=^TestDatabasesEndWithTheTestProcess$")
	cmd.Env = append(os.Environ(), "TESTENV_DATABASES="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the second test process: %v\n%s", err, out)
	}
	left, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(left), "\n") {
		var pid int
		var dir string
		if _, err := fmt.Sscanf(line, "%d %s", &pid, &dir); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		err := waitFor(20*time.Second, "wait for the end of the server in "+dir, func() (bool, string, error) {
			_, err := os.Stat(filepath.Dir(dir))
			return os.IsNotExist(err) && isGone(pid), fmt.Sprintf("process %d has ended: %v, directory: %v", pid,
				isGone(pid), err), nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
