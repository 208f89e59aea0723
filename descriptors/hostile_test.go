package descriptors_test

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
)

// envoyHeaders is how many bytes of headers Envoy accepts by default.
const envoyHeaders = 60 << 10

// fill repeats what until prefix, the repetitions and suffix are as long as
// Envoy lets a path be.
func fill(prefix, what, suffix string) string {
	n := (envoyHeaders - len(prefix) - len(suffix)) / len(what)
	return prefix + strings.Repeat(what, n) + suffix
}

// hiddenPaths are long spellings of /api/pay.
var hiddenPaths = map[string]string{
	"slashes":            fill("", "/", "api/pay"),
	"slashes in between": fill("/api", "/", "pay"),
	"slashes at the end": fill("/api/pay", "/", ""),
	"dots":               fill("", "/.", "/api/pay"),
	"escaped dots":       fill("", "/%2e", "/api/pay"),
	"up":                 fill("", "/..", "/api/pay"),
	"up, escaped":        fill("", "/%2e%2E", "/api/pay"),
	"down and up":        fill("", "/x/..", "/api/pay"),
	"far down and up":    fill("/", "x", "/../api/pay"),
	"deep down and up":   strings.Repeat("/x", 7<<10) + strings.Repeat("/..", 7<<10) + "/api/pay",
	"escaped slashes":    fill("/", "%2f", "/../api/pay"),
	"escapes":            fill("/", "%61", "/../api/pay"),
	"no escapes":         fill("/", "%", "/../api/pay"),
	"half an escape":     fill("/", "%2", "/../api/pay"),
	"backslashes":        fill("/", `\`, "/../api/pay"),
	"NUL":                fill("/", "\x00", "/../api/pay"),
	"escaped NUL":        fill("/", "%00", "/../api/pay"),
	"matrix parameters":  fill("/x", ";a=1", "/../api/pay"),
	"short":              "//api/./%70ay/",
	"a long query":       fill("/api/pay?", "&a=b", ""),
	"a long fragment":    fill("/api/pay#", "?/#", ""),
}

// TestLongPathsHideNothing: however long a way to a path is, the rule for it
// applies.
func TestLongPathsHideNothing(t *testing.T) {
	s := mustLoad(t, resources("path: /api/pay"))
	for name, path := range hiddenPaths {
		if got := resourceFor(s, "GET "+path); got != "*:/api/pay" && !strings.Contains(path, "\x00") {
			t.Errorf("%s, %d bytes: got %s", name, len(path), got)
		}
	}
	var m descriptors.Match
	s.Match("d", []descriptors.Entry{{"method", "GET"}, {"path", hiddenPaths["NUL"]}}, &m)
	if m.Rule == nil {
		t.Errorf("NUL: nothing matches")
	}
}

// TestLongQueriesHideNothing: however much comes before a parameter, the rule
// for it applies.
func TestLongQueriesHideNothing(t *testing.T) {
	s := mustLoad(t, resources("path: /x, match: {query: {page: '1'}}"))
	for _, what := range []string{"a", "&", "=", "&a=b", "&page", "&p%61", "%zz", ";", "&a+b=%2f"} {
		path := fill("/x?", what, "&page=1")
		if want := strings.Contains(what, "page"); (resourceFor(s, "GET "+path) == "-") != want {
			t.Errorf("%d bytes of %q before the parameter: %s", len(path), what, resourceFor(s, "GET "+path))
		}
	}
}

// TestLongPathsAllocateLittle: what a long path costs besides reading it is
// its normal form.
func TestLongPathsAllocateLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := mustLoad(t, resources("path: /api/pay\npath: /api/pay, match: {query: {page: '1'}}"))
	for name, path := range hiddenPaths {
		es := []descriptors.Entry{{"method", "GET"}, {"path", path}}
		var m descriptors.Match
		most := 2.0
		if strings.ContainsAny(path, ";\\%") { // which is read in other ways, too
			most = 7
		}
		if got := testing.AllocsPerRun(50, func() { s.Match("d", es, &m) }); got > most {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}

// BenchmarkHiddenPaths is what the longest paths that Envoy lets through cost.
func BenchmarkHiddenPaths(b *testing.B) {
	s := mustLoad(b, resources("path: /api/pay\npath: /api/pay, match: {query: {page: '1'}}"))
	for name, path := range hiddenPaths {
		es := []descriptors.Entry{{"method", "GET"}, {"path", path}}
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			b.SetBytes(int64(len(path)))
			b.ReportAllocs()
			var m descriptors.Match
			for b.Loop() {
				s.Match("d", es, &m)
			}
		})
	}
}
