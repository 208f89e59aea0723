package reference

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// Variables of a process of this test that runs one group.
const (
	insideOf    = "HEADGATE_TEST_REFERENCE_GROUP" // its name
	insideTests = "HEADGATE_TEST_REFERENCE_TESTS" // the path of the tests
	insideFiles = "HEADGATE_TEST_REFERENCE_FILES" // a directory with what they read
	insideRun   = "HEADGATE_TEST_REFERENCE_RUN"   // which of them run
	insideLog   = "HEADGATE_TEST_REFERENCE_LOG"   // the file for what they print
)

// groupLimit is how long a group may run.
const groupLimit = 5 * time.Minute

// A result is what has become of a test.
type result struct {
	outcome string // PASS, FAIL or SKIP
	log     string // what it says
	in      group
}

// Every test of envoyproxy/ratelimit passes with headgate, or is a row of the table of differences, in which no test
// is that passes.
func TestReference(t *testing.T) {
	tests := testenv.BuildReferenceTests(t, repository)
	names := listed(t, tests.Program)
	var mu sync.Mutex
	results := map[string]result{}
	var all sync.WaitGroup // more than run in parallel with t.Parallel: they wait most of the time
	for i, g := range groups {
		all.Go(func() {
			for _, pattern := range g.patterns(i == 0, names) {
				got := outcomes(run(t, tests, g, pattern), g)
				mu.Lock()
				maps.Copy(results, got)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for _, name := range names {
		if results[name].outcome == "" {
			t.Errorf("%s did not run", name)
		}
	}
	again(t, tests, results)
	judge(t, results)
	passed := 0
	for _, name := range leaves(results) {
		if results[name].outcome == "PASS" {
			passed++
		}
	}
	t.Logf("envoyproxy/ratelimit at %s: %d of its %d integration tests pass", tests.Commit, passed, len(leaves(results)))
}

// again runs up to three times more what fails and should not: their tests count the requests of a minute, which may
// end meanwhile.
func again(t *testing.T, tests testenv.ReferenceTests, results map[string]result) {
	t.Helper()
	for _, name := range leaves(results) {
		for try := 1; try <= 3 && results[name].outcome != "PASS" && row(name) < 0; try++ {
			r := results[name]
			t.Logf("%s fails:\n%s", name, r.log)
			maps.Copy(results, outcomes(run(t, tests, r.in, name+"$"), r.in))
		}
	}
}

// patterns are what -test.run takes for the tests of a group, one after the other.
func (g *group) patterns(first bool, names []string) []string {
	if !first {
		return g.tests
	}
	var others []string
	for _, name := range names {
		in := func(g group) bool {
			return slices.ContainsFunc(g.tests, func(t string) bool { return strings.Split(t, "/")[0] == name })
		}
		if !slices.ContainsFunc(groups, in) {
			others = append(others, name)
		}
	}
	return []string{strings.Join(others, "|")}
}

// listed returns the names of their tests.
func listed(t *testing.T, program string) []string {
	t.Helper()
	_, out, _ := testenv.RunProgram(t, program, nil, "-test.list", ".")
	return strings.Fields(out)
}

// run runs some tests with the servers of their group, in a network of their own if that can be had, and returns what
// they print.
func run(t *testing.T, tests testenv.ReferenceTests, g group, pattern string) string {
	t.Helper()
	files, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	self, err := os.Executable()
	if err := errors.Join(err, os.CopyFS(files, os.DirFS(tests.Files))); err != nil {
		t.Error(err)
		return ""
	}
	top, sub, _ := strings.Cut(pattern, "/")
	pattern = "^(" + top + ")$/^" + sub
	var out bytes.Buffer
	cmd := exec.Command(self, "-test.run", "^TestInside$", "-test.timeout", groupLimit.String())
	cmd.Dir = "."
	cmd.Env = append(os.Environ(), insideOf+"="+g.name, insideTests+"="+tests.Program, insideFiles+"="+files,
		insideRun+"="+pattern, insideLog+"="+log, "REFERENCE_TESTS_PROGRAM="+program)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := runApart(cmd); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// TestInside runs a group, in the process that [run] starts.
func TestInside(t *testing.T) {
	i := slices.IndexFunc(groups, func(g group) bool { return g.name == os.Getenv(insideOf) })
	if i < 0 {
		t.Skip("TestReference runs it in a process of its own")
	}
	if err := linkUp(); err != nil {
		t.Fatal(err)
	}
	var env []string
	if groups[i].servers != nil {
		env = groups[i].servers(t)
	}
	log, err := os.Create(os.Getenv(insideLog))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(t.Context(), os.Getenv(insideTests), "-test.v", "-test.run", os.Getenv(insideRun),
		"-test.timeout", groupLimit.String())
	cmd.Dir, cmd.Stdout, cmd.Stderr = os.Getenv(insideFiles), log, log
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "HEADGATE_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	_ = cmd.Run() // its log says what came of it
}

var outcome = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+) \(`)

// outcomes reads what has become of each test and subtest of a group.
func outcomes(log string, in group) map[string]result {
	all, says, last := map[string]result{}, map[string]string{}, ""
	for line := range strings.Lines(log) {
		if name, ok := strings.CutPrefix(line, "=== RUN   "); ok {
			last = strings.TrimSpace(name)
		}
		if m := outcome.FindStringSubmatch(line); m != nil {
			all[m[2]] = result{m[1], says[m[2]], in}
		}
		if says[last] += line; len(says[last]) > maxLog {
			says[last] = says[last][len(says[last])-maxLog:]
		}
	}
	// A panic ends all tests, and the one that runs has no line then.
	if _, ended := all[last]; !ended && last != "" {
		all[last] = result{"FAIL", says[last], in}
	}
	return all
}

// maxLog is how much is kept of what a test says, in bytes.
const maxLog = 4 << 10

// leaves are the tests without subtests, in the order of their names.
func leaves(results map[string]result) []string {
	names := slices.Sorted(maps.Keys(results))
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

// row returns the row of the table of differences that a test is in, -1 if it is in none.
func row(name string) int {
	return slices.IndexFunc(differences, func(d difference) bool { return d.tests.MatchString(name) })
}

// judge compares results with the table of differences.
func judge(t *testing.T, results map[string]result) {
	t.Helper()
	used := map[int]bool{}
	for _, name := range leaves(results) {
		i, r := row(name), results[name]
		switch passed := r.outcome == "PASS"; {
		case passed && i >= 0:
			t.Errorf("%s passes: take it out of the row with the reason %q", name, differences[i].reason)
		case !passed && i < 0:
			t.Errorf("%s: %s, and no row of the table of differences says why:\n%s", name, r.outcome, r.log)
		case !passed:
			used[i] = true
		}
	}
	for i, d := range differences {
		if !used[i] {
			t.Errorf("no test is one of %s: take the row out", d.tests)
		}
		if d.reason == "" {
			t.Errorf("a row without a reason: %s", d.tests)
		}
	}
}
