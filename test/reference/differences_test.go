package reference

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of differences into docs/compatibility.md")

// A difference is a row of the table of their tests that fail.
type difference struct {
	tests  *regexp.Regexp
	reason string // why headgate differs under the name ratelimit
}

var differences = []difference{
	{regexp.MustCompile(`^Test(BasicConfigMemcache|ConfigMemcacheWithMaxIdleConns|MultiNodeMemcache)\b`),
		"headgate does not keep counters in memcache, where each replica admits more than the limit"},
}

const (
	page  = "../../docs/compatibility.md"
	begin = "<!-- generated: reference tests -->\n"
	end   = "<!-- end of reference tests -->\n"
)

// The page of differences has the rows of the table, and names the commit that tests compare with, and no other.
func TestDifferencesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	is, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", page)
	}
	var want strings.Builder
	want.WriteString("\n| tests | why |\n|---|---|\n")
	for _, d := range differences {
		names := strings.NewReplacer("^", "", `\b`, "", "|", "`, `Test", "Test(", "Test", ")", "").Replace(d.tests.String())
		fmt.Fprintf(&want, "| `%s` | %s |\n", names, d.reason)
	}
	want.WriteString("\n")
	switch {
	case is == want.String():
	case *update:
		if err := os.WriteFile(page, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has another table; go test ./test/reference -update writes it:\n%s", page, is)
	}
	mod, err := os.ReadFile("../../tools/reference/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`envoyproxy/ratelimit v\S+-([0-9a-f]{7})[0-9a-f]{5}\n`).FindSubmatch(mod)
	if m == nil {
		t.Fatal("tools/reference/go.mod names no commit of the reference")
	}
	for _, named := range regexp.MustCompile("commit `([0-9a-f]+)`").FindAllStringSubmatch(string(text), -1) {
		if named[1] != string(m[1]) {
			t.Errorf("%s names commit %s; tests compare with %s", page, named[1], m[1])
		}
	}
	if !strings.Contains(string(text), "commit `"+string(m[1])+"`") {
		t.Errorf("%s does not name commit %s", page, m[1])
	}
}
