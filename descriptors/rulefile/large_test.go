package rulefile

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/test/random"
)

// manyRules are so many rules, each of which item writes.
func manyRules(n int, item func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(item(i))
	}
	return b.String()
}

// TestLargeFilesReadLikeSmallOnes: what is read in parts is what is read as a whole, problems included. A file that may
// have anchors is read as a whole.
func TestLargeFilesReadLikeSmallOnes(t *testing.T) {
	many := random.Times(1500, 4500)
	flow := func(indent string) func(int) string {
		return func(i int) string {
			return fmt.Sprintf("%s- {key: k, value: v%d, rate_limit: {unit: hour, requests_per_unit: %d}}\n", indent, i, i+1)
		}
	}
	block := func(i int) string {
		return fmt.Sprintf("  # rule %d\n  - key: k%d\n    rate_limit:\n      unit: hour\n\n      requests_per_unit: 5\n"+
			"    descriptors:\n    - key: below\n      rate_limit: {unit: day, requests_per_unit: 7}\n", i, i)
	}
	resource := func(i int) string {
		return fmt.Sprintf("- path: /api/%d\n  rate_limit: {unit: hour, requests_per_unit: 5}\n", i)
	}
	at := func(n int, bad string, item func(int) string) func(int) string {
		return func(i int) string {
			if i == n {
				return bad
			}
			return item(i)
		}
	}
	for name, text := range map[string]string{
		"flow":       "domain: d\ndescriptors:\n" + manyRules(many, flow("")),
		"indented":   "domain: d\ndescriptors:   \n" + manyRules(many, flow("  ")),
		"block":      "# comment\ndomain: d\ndescriptors:\n" + manyRules(many, block),
		"CRLF":       strings.ReplaceAll("domain: d\ndescriptors:\n"+manyRules(many, block), "\n", "\r\n"),
		"both":       "descriptors:\n" + manyRules(many, block) + "resources:\n" + manyRules(many, resource) + "domain: d\n",
		"no end":     "domain: d\ndescriptors:\n" + strings.TrimSuffix(manyRules(many, flow("")), "\n"),
		"a document": "domain: d\ndescriptors:\n" + manyRules(many, flow("")) + "---\nmore: 1\n",
		"twice": "domain: d\ndescriptors:\n" + manyRules(many, flow("")) + "descriptors:\n" +
			manyRules(many, flow("")),
		"quotes over lines": "domain: d\ndescriptors:\n" +
			manyRules(many, at(many/6, "- key: \"k\n- x\n- y\"\n  rate_limit: {unit: hour, requests_per_unit: 5}\n", flow(""))),
		"in a text": "domain: \"\ndescriptors:\n" + manyRules(many, func(i int) string { return fmt.Sprintln("-", i) }) +
			strings.Repeat("x", 256<<10) + "\"\n",
		"a wrong unit": "domain: d\ndescriptors:\n" + manyRules(many, at(many-500, "- {key: a, rate_limit: {unit: year}}\n",
			flow(""))),
		"a doubled rule":  "domain: d\ndescriptors:\n" + manyRules(many, flow("")) + flow("")(7),
		"an open brace":   "domain: d\ndescriptors:\n" + manyRules(many, at(many*2/3, "- {key: a\n", flow(""))),
		"an open quote":   "domain: d\ndescriptors:\n" + manyRules(many, at(many*2/3, "- {key: \"a}\n", flow(""))),
		"a tab":           "domain: d\ndescriptors:\n" + manyRules(many, at(many*2/3, "-\t{key: a}\n\t- x\n", flow(""))),
		"too far left":    "domain: d\ndescriptors:\n" + manyRules(many, at(many*2/3, " - {key: a}\n", flow("  "))),
		"too far right":   "domain: d\ndescriptors:\n" + manyRules(many, at(many*2/3, "    - {key: a}\n", flow("  "))),
		"an item of text": "domain: d\ndescriptors:\n" + manyRules(many, at(many*2/3, "- just text\n", flow(""))),
		"not a list":      "domain: d\ndescriptors:\n  a: b\n" + manyRules(many, func(i int) string { return "  # long\n" }),
	} {
		if len(text) < 256<<10 {
			text += strings.Repeat("# long\n", 40<<10)
		}
		set, problems := Load([]Source{{Name: "f", Data: []byte(text)}}, Options{})
		whole, want := Load([]Source{{Name: "f", Data: []byte(text + "\n# &\n")}}, Options{})
		if (set == nil) != (whole == nil) || set != nil && dumped(t, set) != dumped(t, whole) {
			t.Errorf("%s: the rules differ", name)
		}
		if len(want) > 0 && strings.Contains(want[0].Message, "not valid YAML") {
			problems = slices.DeleteFunc(problems, func(p descriptors.Problem) bool {
				return !strings.Contains(p.Message, "not valid YAML")
			})
		}
		if !slices.Equal(problems, want) {
			t.Errorf("%s: %.200v, want %.200v", name, problems, want)
		}
	}
}

func dumped(t *testing.T, set *descriptors.Set) string {
	t.Helper()
	var b bytes.Buffer
	if err := set.Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLargeFilesNeedLittleMemory: 200 MiB for 100,000 rules, also with one bad line, of any kind.
func TestLargeFilesNeedLittleMemory(t *testing.T) {
	many := random.Times(25_000, 100_000)
	for name, bad := range map[string]string{
		"good":         "",
		"a wrong unit": "- {key: a, rate_limit: {unit: fortnight, requests_per_unit: 5}}\n",
		"no YAML":      "- {key: a, rate_limit: {unit: hour\n",
	} {
		text := []byte("domain: d\ndescriptors:\n" + manyRules(many-1, func(i int) string {
			one := fmt.Sprintf("- {key: k, value: v%d, rate_limit: {unit: hour, requests_per_unit: 5}}\n", i)
			if i == many/2 {
				return one + bad
			}
			return one
		}))
		most := peakHeap(func() { Load([]Source{{Name: "f", Data: text}}, Options{}) })
		t.Logf("%s: %d MiB", name, most>>20)
		if most > uint64(many)*2100 {
			t.Errorf("%s: the heap grows to %d MiB", name, most>>20)
		}
	}
}

// peakHeap returns the most that f had on the heap, garbage included.
func peakHeap(f func()) (most uint64) {
	runtime.GC()
	done, seen := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				seen <- most
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	f()
	close(done)
	return <-seen
}
