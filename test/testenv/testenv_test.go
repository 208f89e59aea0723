package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fakeTB notes how a test ended instead of ending one.
type fakeTB struct {
	*testing.T
	fatal, skip string
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fakeTB) Skipf(format string, args ...any) {
	f.skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// pretend runs f as a test of its own and returns how it ended.
func pretend(t *testing.T, f func(TB)) *fakeTB {
	t.Helper()
	tb := &fakeTB{T: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(tb)
	}()
	<-done
	return tb
}

func TestRequireSkipsOrFails(t *testing.T) {
	report := t.TempDir()
	t.Setenv(EnvDir, filepath.Join(t.TempDir(), "nothing-here"))
	t.Setenv(EnvReport, report)
	for _, c := range []struct {
		name, engine, mustRun string
		fatal, skip           []string
	}{
		{name: "a missing engine skips", engine: Valkey, skip: []string{"valkey", "nothing-here", "make setup"}},
		{name: "another one is demanded", engine: Valkey, mustRun: Redis62, skip: []string{"valkey"}},
		{name: "a demanded one fails", engine: Valkey, mustRun: "redis, valkey",
			fatal: []string{EnvMustRun, "valkey", "nothing-here", "make setup"}},
		{name: "an unknown engine fails", engine: "oracel", fatal: []string{`"oracel"`, "redis-cluster"}},
		{name: "a misspelt demand fails", engine: Valkey, mustRun: "vallkey", fatal: []string{EnvMustRun, `"vallkey"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(EnvMustRun, c.mustRun)
			tb := pretend(t, func(tb TB) { Require(tb, c.engine) })
			mustContain(t, "the failure", tb.fatal, c.fatal)
			mustContain(t, "the skip", tb.skip, c.skip)
		})
	}
	t.Run("without servers", func(t *testing.T) {
		t.Setenv(EnvServers, NoServers)
		t.Setenv(EnvMustRun, "")
		mustContain(t, "the skip", pretend(t, func(tb TB) { Require(tb, Redis) }).skip, []string{"redis", EnvServers})
		t.Setenv(EnvMustRun, Redis)
		mustContain(t, "the failure", pretend(t, func(tb TB) { Require(tb, Redis) }).fatal, []string{EnvMustRun, EnvServers})
		if tb := pretend(t, func(tb TB) { Require(tb, Memory) }); tb.skip != "" || tb.fatal != "" {
			t.Errorf("what needs no program is skipped: %q %q", tb.skip, tb.fatal)
		}
	})
	notes, err := readNotes(report, Valkey+noteMissing)
	if err != nil || len(notes) != 3 {
		t.Errorf("the report holds %q (%v), want three notes", notes, err)
	}
}

// An engine that set-up cannot install is asked for its address, and no complete
// run demands it.
func TestRequireDSN(t *testing.T) {
	report := t.TempDir()
	t.Setenv(EnvReport, report)
	t.Setenv(EnvMustRun, "")
	t.Setenv("TEST_ORACLE_DSN", "")
	if list := Installable(); slices.Contains(list, Oracle) || !slices.Contains(list, Postgres) {
		t.Errorf("set-up is said to install %q", list)
	}
	ask := func(engine string) (dsn string, tb *fakeTB) {
		tb = pretend(t, func(tb TB) { dsn = RequireDSN(tb, engine) })
		return dsn, tb
	}
	_, tb := ask(Oracle)
	mustContain(t, "the skip", tb.skip, []string{"oracle", "Set TEST_ORACLE_DSN"})
	_, tb = ask(Postgres)
	mustContain(t, "the failure", tb.fatal, []string{"postgres", "start it"})
	tb = pretend(t, func(tb TB) { Require(tb, Oracle) })
	mustContain(t, "the failure", tb.fatal, []string{"oracle", "RequireDSN"})
	t.Setenv(EnvMustRun, Oracle)
	_, tb = ask(Oracle)
	mustContain(t, "the failure", tb.fatal, []string{EnvMustRun, "TEST_ORACLE_DSN is not set"})

	var out strings.Builder
	if err := WriteReport(&out, report, ""); err != nil {
		t.Fatal(err)
	}
	if want := "oracle          not run  -       set TEST_ORACLE_DSN\n"; !strings.Contains(out.String(), want) {
		t.Errorf("the report lacks the line %q:\n%s", want, out.String())
	}
	t.Setenv("TEST_ORACLE_DSN", "app/secret@db:1521/x")
	if dsn, tb := ask(Oracle); dsn != "app/secret@db:1521/x" || tb.fatal+tb.skip != "" {
		t.Errorf("the address is %q (%s%s)", dsn, tb.fatal, tb.skip)
	}
	out.Reset()
	if err := WriteReport(&out, report, ""); err != nil {
		t.Fatal(err)
	}
	if want := "oracle          run      1       Oracle Database, version of TEST_ORACLE_DSN\n"; !strings.Contains(
		out.String(), want) {
		t.Errorf("the report lacks the line %q:\n%s", want, out.String())
	}
	if strings.Contains(out.String(), "secret") {
		t.Errorf("the report tells a password:\n%s", out.String())
	}
}

// MySQL cannot always be installed: a complete run demands it where it is.
func TestMovingEngine(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(EnvDir, dir)
	if slices.Contains(Installable(), MySQL) {
		t.Error("MySQL is demanded where it is not installed")
	}
	if err := os.Mkdir(filepath.Join(dir, "mysql"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mysql", "mysqld"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(Installable(), MySQL) {
		t.Error("MySQL is not demanded although it is installed")
	}
}

func TestNewestComparesNumbers(t *testing.T) {
	dir := t.TempDir()
	if got := newest(filepath.Join(dir, "*", "bin")); got != "" {
		t.Errorf("of nothing the newest is %s", got)
	}
	for _, name := range []string{"9", "17", "15"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "bin"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := newest(filepath.Join(dir, "*", "bin")), filepath.Join(dir, "17", "bin"); got != want {
		t.Errorf("the newest is %s, want %s", got, want)
	}
}

func mustContain(t *testing.T, what, got string, want []string) {
	t.Helper()
	if len(want) == 0 && got != "" {
		t.Errorf("%s is %q, want none", what, got)
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s is %q, which does not say %q", what, got, w)
		}
	}
}

func TestReportNamesEnginesThatDidNotRun(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(EnvReport, dir)
	ran(t, Redis, "7.0.15")
	ran(t, Redis, "7.0.15")
	ran(t, Envoy1400, "1.40.0")
	note(t, Redis62, noteMissing, "there is no program x")

	var out strings.Builder
	err := WriteReport(&out, dir, "redis,redis62,valkey")
	if err == nil || !strings.HasSuffix(err.Error(), "no test ran on them: redis62, valkey") {
		t.Errorf("demanded engines are missing, but the error is %v", err)
	}
	for _, want := range []string{
		"redis           run      2       Redis of the system, one server, version 7.0.15\n",
		"redis62         not run  -       there is no program x (make setup)\n",
		"valkey          not run  -       no test asked for it\n",
		"envoy-1.40.0    run      1       Envoy 1.40.0, version 1.40.0\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks the line %q:\n%s", want, out.String())
		}
	}
	if err := WriteReport(&out, dir, "redis,envoy-1.40.0"); err != nil {
		t.Errorf("all demanded engines ran: %v", err)
	}
	if err := WriteReport(&out, filepath.Join(dir, "none"), ""); err == nil {
		t.Error("a report directory that does not exist passes")
	}
	if err := WriteReport(&out, dir, "vallkey"); err == nil {
		t.Error("a misspelt demand passes")
	}
}

// Clients are found, tell their versions, and are in the report.
func TestUseClient(t *testing.T) {
	report := t.TempDir()
	for _, engine := range []string{GRPCIO, GRPCurl, Schemathesis, PLSQLGrammar} {
		t.Run(engine, func(t *testing.T) {
			t.Setenv(EnvReport, report)
			UseClient(t, engine)
			notes, err := readNotes(report, engine+noteRan)
			if err != nil || len(notes) != 1 || !strings.ContainsAny(notes[0], "0123456789") {
				t.Errorf("the report holds %q (%v), want one note with a version", notes, err)
			}
		})
	}
}

func TestFreePort(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 40 {
		port := FreePort(t)
		if seen[port] {
			t.Fatalf("port %d was given out twice", port)
		}
		seen[port] = true
	}
}

// TestChildrenDieWithTheTestProcess runs this test once more as a process of
// its own that starts a child and ends without any cleanup.
func TestChildrenDieWithTheTestProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child's life to its parent's")
	}
	if dir := os.Getenv("TESTENV_ORPHAN"); dir != "" {
		p, err := startProcess("sleep", filepath.Join(dir, "log"), "/bin/sleep", "60")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(p.cmd.Process.Pid)), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	}
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildrenDieWithTheTestProcess$")
	cmd.Env = append(os.Environ(), "TESTENV_ORPHAN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the second test process: %v\n%s", err, out)
	}
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	err = waitFor(5*time.Second, "wait for the child to be killed", func() (bool, string, error) {
		stat, err := os.ReadFile("/proc/" + string(pid) + "/stat")
		// Nobody collects an orphan's status where there is no init: a zombie
		// is dead enough.
		return err != nil || strings.Contains(string(stat), ") Z "), string(stat), nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestProcessThatIgnoresTermination(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, err := startProcess("a deaf shell", filepath.Join(dir, "log"), "/bin/sh", "-c",
		`trap "" TERM; echo deaf; while :; do sleep 0.05; done`)
	if err != nil {
		t.Fatal(err)
	}
	err = waitFor(5*time.Second, "wait for the trap", func() (bool, string, error) {
		return strings.Contains(p.newLog(), "deaf"), p.newLog(), nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := p.terminate(100 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("terminate returns %v, want to hear that it had to kill", err)
	}
	if !p.exited() {
		t.Error("the process still runs")
	}
	if err := p.kill(); err != nil {
		t.Errorf("to kill a dead process is an error: %v", err)
	}
}
