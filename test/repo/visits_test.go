package repo

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mostVisited bounds the packages of ours whose code one decision by counters in memory runs, the library's own among
// them: to learn how a request is decided is to read these. Raise none of these, and lower what has become smaller.
var mostVisited = map[string]int{"-each=true": 8, "-each=false": 8} // requests that pass, and that are refused

// TestPackagesOfADecision: the code of few packages decides. They are those whose code runs once more, at least, for
// each check more.
func TestPackagesOfADecision(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "small")
	cmd := exec.Command("go", "build", "-cover", "-covermode=atomic", "-coverpkg="+module+"/...", "-o", binary,
		"./test/repo/testdata/small")
	cmd.Dir = root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const few, many = 100, 1_100
	for kind, most := range mostVisited {
		before, after := runs(t, binary, kind, few), runs(t, binary, kind, many)
		var visited []string
		for pkg, n := range after {
			if our, _ := ours(pkg); n-before[pkg] >= many-few && !slices.Contains(outside, roomOf(our)) {
				visited = append(visited, our)
			}
		}
		slices.Sort(visited)
		t.Logf("%s: %s", kind, strings.Join(visited, ", "))
		bounded(t, "packages of a decision, "+kind, len(visited), most)
		if !slices.Contains(visited, "limit") {
			t.Errorf("%s: package limit is not among the packages of a decision", kind)
		}
	}
}

// runs returns how often statements of each package run in a program that makes so many checks.
func runs(t *testing.T, binary, kind string, checks int) map[string]int {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(binary, "-checks", strconv.Itoa(checks), kind)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := filepath.Join(dir, "text")
	if out, err := exec.Command("go", "tool", "covdata", "textfmt", "-i", dir, "-o", text).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(readFile(t, text))) { // package/file.go:place statements count
		file, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) != 3 {
			continue // the mode
		}
		count, err := strconv.Atoi(fields[2])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		n[path.Dir(file)] += count
	}
	return n
}
