package watch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

const brokenRule = "descriptors:\n  - key: a\n    rate_limit: {unit: fortnight, requests_per_unit: 1}\n"

// A step changes files and says what is in force after it: "d=1,e=2", and which
// files have errors.
type step struct {
	name  string
	files map[string]string // "": removed
	want  string
	bad   string // "a.yaml b.yaml"
	kept  string
}

// play does the steps on a directory of rules with a watcher that has no
// timing: each step is one look at the files.
func play(t *testing.T, opt rulefile.Options, steps []step) {
	t.Helper()
	dir := t.TempDir()
	playIn(t, dir, []string{dir}, opt, steps)
}

// playIn is play with paths, below dir.
func playIn(t *testing.T, dir string, paths []string, opt rulefile.Options, steps []step) {
	t.Helper()
	var set *descriptors.Set
	var last *Outcome
	w := New(paths, Options{
		Options: opt, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Settle: -1,
		OnChange:  func(s *descriptors.Set, _ []descriptors.Problem) { set = s },
		OnOutcome: func(o *Outcome) { last = o },
	})
	for i, s := range steps {
		for name, content := range s.files {
			if content == "" {
				do(t, os.Remove(filepath.Join(dir, name)))
			} else {
				write(t, filepath.Join(dir, name), content)
			}
		}
		if i == 0 {
			var err error
			if set, _, err = w.Load(); err != nil {
				t.Fatal(err)
			}
		} else {
			w.reload()
		}
		var bad []string
		for file := range last.Errors() {
			bad = append(bad, filepath.Base(file))
		}
		sort.Strings(bad)
		got := fmt.Sprint(describeSet(set), "|", strings.Join(bad, " "), "|", strings.Join(last.Kept, " "))
		if want := fmt.Sprint(s.want, "|", s.bad, "|", s.kept); got != want {
			t.Fatalf("step %d, %s:\n got %s\nwant %s", i, s.name, got, want)
		}
		if (last.Err != nil) != (s.bad != "") {
			t.Errorf("step %d, %s: the error is %v", i, s.name, last.Err)
		}
	}
}

func TestBrokenFileKeepsItsDomainAndNoOther(t *testing.T) {
	start := step{"start", map[string]string{"a.yaml": rulesFor("d", 1), "b.yaml": rulesFor("e", 1)}, "d=1,e=1", "", ""}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"an error in the rules", []step{start,
			{"one breaks, the other changes", map[string]string{"a.yaml": "domain: d\n" + brokenRule,
				"b.yaml": rulesFor("e", 2)}, "d=1,e=2", "a.yaml", "d"},
			{"the other changes again", map[string]string{"b.yaml": rulesFor("e", 3)}, "d=1,e=3", "a.yaml", "d"},
			{"mended to what it was", map[string]string{"a.yaml": rulesFor("d", 1)}, "d=1,e=3", "", ""},
			{"changed", map[string]string{"a.yaml": rulesFor("d", 2)}, "d=2,e=3", "", ""}}},
		{"not YAML", []step{start,
			{"half a file", map[string]string{"a.yaml": "domain: d\ndescriptors: [", "b.yaml": rulesFor("e", 2)}, "d=1,e=2",
				"a.yaml", "d"},
			{"empty", map[string]string{"a.yaml": "\n"}, "d=1,e=2", "a.yaml", "d"},
			{"mended", map[string]string{"a.yaml": rulesFor("d", 3)}, "d=3,e=2", "", ""}}},
		{"a new file that is broken", []step{start,
			{"new", map[string]string{"c.yaml": "domain: f\n" + brokenRule, "b.yaml": rulesFor("e", 2)}, "d=1,e=2",
				"c.yaml", ""},
			{"mended", map[string]string{"c.yaml": rulesFor("f", 1)}, "d=1,e=2,f=1", "", ""}}},
		{"a broken file that goes", []step{start,
			{"breaks", map[string]string{"a.yaml": "domain: ["}, "d=1,e=1", "a.yaml", "d"},
			{"is deleted", map[string]string{"a.yaml": ""}, "e=1", "", ""}}},
		{"a broken file that is renamed", []step{start,
			{"breaks", map[string]string{"a.yaml": "domain: ["}, "d=1,e=1", "a.yaml", "d"},
			{"is renamed", map[string]string{"a.yaml": "", "z.yaml": "domain: ["}, "d=1,e=1", "z.yaml", "d"},
			{"is mended", map[string]string{"z.yaml": rulesFor("d", 2)}, "d=2,e=1", "", ""}}},
		{"a file that goes while another is broken", []step{start,
			{"both", map[string]string{"a.yaml": "", "b.yaml": "domain: e\n" + brokenRule}, "d=1,e=1", "b.yaml", "e d"},
			{"mended", map[string]string{"b.yaml": rulesFor("e", 2)}, "e=2", "", ""}}},
		{"a file that changes its domain", []step{start,
			{"to a new one", map[string]string{"a.yaml": rulesFor("f", 1)}, "e=1,f=1", "", ""},
			{"back, broken", map[string]string{"a.yaml": "domain: d\n" + brokenRule}, "e=1,f=1", "a.yaml", "f"},
			{"mended", map[string]string{"a.yaml": rulesFor("d", 2)}, "d=2,e=1", "", ""},
			{"to the other's", map[string]string{"a.yaml": rulesFor("e", 5)}, "d=2,e=1", "b.yaml", "e d"},
			{"which moves away", map[string]string{"b.yaml": rulesFor("d", 6)}, "d=6,e=5", "", ""}}},
		{"two files of one domain", []step{start,
			{"an earlier one comes", map[string]string{"0.yaml": rulesFor("d", 9), "b.yaml": rulesFor("e", 2)}, "d=1,e=2",
				"a.yaml", "d"},
			{"both change", map[string]string{"0.yaml": rulesFor("d", 8), "a.yaml": rulesFor("d", 7)}, "d=1,e=2", "a.yaml", "d"},
			{"the first stays", map[string]string{"a.yaml": ""}, "d=8,e=2", "", ""}}},
		{"all break", []step{start,
			{"all", map[string]string{"a.yaml": "domain: d\n" + brokenRule, "b.yaml": "x"}, "d=1,e=1", "a.yaml b.yaml", "d e"},
			{"one is mended", map[string]string{"b.yaml": rulesFor("e", 2)}, "d=1,e=2", "a.yaml", "d"}}},
	} {
		t.Run(tc.name, func(t *testing.T) { play(t, rulefile.Options{}, tc.steps) })
	}
}

// rulesOf is a file with one rule on a key of its own.
func rulesOf(domain, key string, n int) string {
	return strings.Replace(rulesFor(domain, n), "key: a", "key: "+key, 1)
}

// A domain of several files must not lose the rules of one that is broken.
func TestBrokenFileKeepsAMergedDomainWhole(t *testing.T) {
	play(t, rulefile.Options{MergeDomains: true}, []step{
		{"start", map[string]string{"a.yaml": rulesOf("d", "a", 1), "b.yaml": rulesOf("d", "b", 2),
			"c.yaml": rulesFor("e", 1)}, "d=1,d=2,e=1", "", ""},
		{"one cannot be read", map[string]string{"a.yaml": rulesOf("d", "a", 3), "b.yaml": "domain: [",
			"c.yaml": rulesFor("e", 2)}, "d=1,d=2,e=2", "b.yaml", "d"},
		{"it is renamed", map[string]string{"b.yaml": "", "f.yaml": "domain: ["}, "d=1,d=2,e=2", "f.yaml", "d"},
		{"mended", map[string]string{"f.yaml": rulesOf("d", "b", 4)}, "d=3,d=4,e=2", "", ""},
		{"an error in one", map[string]string{"f.yaml": "domain: d\n" + brokenRule, "a.yaml": rulesOf("d", "a", 5)},
			"d=3,d=4,e=2", "f.yaml", "d"},
		{"the same rule in both", map[string]string{"f.yaml": rulesOf("d", "a", 6), "c.yaml": rulesFor("e", 3)},
			"d=3,d=4,e=3", "f.yaml", "d"},
		{"one goes", map[string]string{"f.yaml": ""}, "d=5,e=3", "", ""},
	})
}

// Files of a plugin share a domain that none of them names.
func TestBrokenFileKeepsTheImpliedDomainWhole(t *testing.T) {
	soap := func(path string) string {
		return "plugin: rest\nresources:\n  - method: GET\n    path: " + path +
			"\n    concurrency: [{threshold: 1, response: {statusCode: 503}}]\n"
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), soap("/a"))
	write(t, filepath.Join(dir, "b.yaml"), soap("/b"))
	w := New([]string{dir}, Options{Log: slog.New(slog.DiscardHandler)})
	if _, problems, err := w.Load(); err != nil {
		t.Fatal(problems, err)
	}
	rules := 0
	w.opt.OnChange = func(s *descriptors.Set, _ []descriptors.Problem) { rules = len(s.Rules()) }
	write(t, filepath.Join(dir, "b.yaml"), "plugin: [")
	write(t, filepath.Join(dir, "a.yaml"), soap("/c"))
	w.reload()
	if rules != 0 {
		t.Errorf("the domain is replaced by %d of its rules", rules)
	}
}

func TestUnreadableFileKeepsNoOtherFromChanging(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, file, rulesFor("d", 1))
	write(t, link, rulesFor("e", 1))
	var last *Outcome
	got := ""
	w := New([]string{dir, filepath.Join(dir, "more.txt")}, Options{
		Log: slog.New(slog.DiscardHandler), Settle: -1, OnOutcome: func(o *Outcome) { last = o },
		OnChange: func(s *descriptors.Set, _ []descriptors.Problem) { got = describeSet(s) },
	})
	write(t, filepath.Join(dir, "more.txt"), rulesFor("f", 1))
	_, _, err := w.Load()
	do(t, err)
	do(t, os.Remove(link), os.Symlink("nowhere", link), os.Remove(filepath.Join(dir, "more.txt")))
	write(t, file, rulesFor("d", 2))
	w.reload()
	if got != "d=2,e=1,f=1" || last.Errors()[link] != 1 || last.Errors()[filepath.Join(dir, "more.txt")] != 1 {
		t.Errorf("%s in force, errors %v", got, last.Errors())
	}
	do(t, os.Remove(link), os.Mkdir(link, 0o700)) // a directory without rules is no domain
	write(t, filepath.Join(dir, "more.txt"), rulesFor("f", 2))
	w.reload()
	if got != "d=2,f=2" || last.Err != nil {
		t.Errorf("%s in force, %v", got, last.Err)
	}
}

func TestCheckKeepsItsDomainOnly(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), rulesFor("d", 1))
	write(t, filepath.Join(dir, "b.yaml"), rulesFor("e", 1))
	got := ""
	var last *Outcome
	w := New([]string{dir}, Options{
		Log: slog.New(slog.DiscardHandler), Settle: -1, OnOutcome: func(o *Outcome) { last = o },
		OnChange: func(s *descriptors.Set, _ []descriptors.Problem) { got = describeSet(s) },
		Check: func(s *descriptors.Set) (list []descriptors.Problem) {
			for _, r := range s.Rules() {
				if r.Limits[0].Limit.Max() > 10 {
					file, line := r.Place()
					list = append(list, descriptors.Problem{File: file, Line: line, Message: "too much"})
				}
			}
			return list
		},
	})
	_, _, err := w.Load()
	do(t, err)
	for i, other := range []string{"", "c.yaml"} { // without and with a file that is broken besides
		write(t, filepath.Join(dir, "a.yaml"), rulesFor("d", 11))
		write(t, filepath.Join(dir, "b.yaml"), rulesFor("e", 2+i))
		if other != "" {
			write(t, filepath.Join(dir, other), "domain: f\n"+brokenRule)
		}
		w.reload()
		if want := fmt.Sprint("d=1,e=", 2+i); got != want || last.Errors()[filepath.Join(dir, "a.yaml")] != 1 ||
			len(last.Errors()) != 1+i {
			t.Errorf("%s in force, want %s; errors %v", got, want, last.Errors())
		}
	}
}

func TestSkipStartsWithoutBrokenDomains(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "domain: d\n"+brokenRule)
	write(t, filepath.Join(dir, "b.yaml"), rulesFor("e", 1))
	write(t, filepath.Join(dir, "c.yaml"), "domain: [")
	do(t, os.Symlink("nowhere", filepath.Join(dir, "z.yaml")))
	quiet := slog.New(slog.DiscardHandler)
	if _, _, err := New([]string{dir}, Options{Log: quiet}).Load(); err == nil {
		t.Error("without Skip Load takes broken files")
	}
	var last *Outcome
	w := New([]string{dir}, Options{Log: quiet, Skip: true, OnOutcome: func(o *Outcome) { last = o }})
	set, problems, err := w.Load()
	do(t, err)
	if describeSet(set) != "e=1" || strings.Join(last.Missing, " ") != "d" || len(last.Errors()) != 3 ||
		len(problems) != 0 {
		t.Errorf("%s, missing %q, errors %v, warnings %v", describeSet(set), last.Missing, last.Errors(), problems)
	}
	got := ""
	w.opt.OnChange = func(s *descriptors.Set, _ []descriptors.Problem) { got = describeSet(s) }
	write(t, filepath.Join(dir, "a.yaml"), rulesFor("d", 2))
	w.reload()
	if got != "d=2,e=1" || len(last.Missing) != 0 {
		t.Errorf("after one file was mended %s, missing %q", got, last.Missing)
	}

	alone := t.TempDir()
	write(t, filepath.Join(alone, "a.yaml"), "domain: d\n"+brokenRule)
	if _, _, err := New([]string{alone}, Options{Log: quiet, Skip: true}).Load(); err == nil {
		t.Error("Skip starts with no domain at all")
	}
}

// Run without Load takes nothing of files with errors, as Load does.
func TestRunWithoutLoadRefusesBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "domain: [")
	write(t, filepath.Join(dir, "b.yaml"), rulesFor("e", 1))
	w := &watched{t: t}
	w.Watcher = New([]string{dir}, Options{Log: slog.New(slog.DiscardHandler), Debounce: time.Millisecond,
		OnChange: func(s *descriptors.Set, _ []descriptors.Problem) { w.note(describeSet(s)) }, OnOutcome: w.noteErrors})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	w.want("error")
	write(t, filepath.Join(dir, "a.yaml"), rulesFor("d", 1))
	w.want("error d=1,e=1")
	cancel()
	do(t, <-done)
}

// TestLoadErrorShowsSomeProblems: its text goes into a log whenever files change.
func TestLoadErrorShowsSomeProblems(t *testing.T) {
	problems := make([]descriptors.Problem, 102)
	for i := range problems {
		problems[i] = descriptors.Problem{File: "a.yaml", Line: i + 1, Message: "wrong", Warning: i < 2}
	}
	text := (&files.LoadError{Problems: problems}).Error()
	if strings.Count(text, "wrong") != 20 || !strings.HasPrefix(text, "a.yaml:3: wrong\n") ||
		!strings.HasSuffix(text, "\nand 80 further problems, which headgate check shows") {
		t.Error(text)
	}
	if text := (&files.LoadError{Problems: problems[:22]}).Error(); strings.Contains(text, "further") ||
		strings.Count(text, "wrong") != 20 {
		t.Error(text)
	}
}

// Files of one owner change nothing of what another one has.
func TestOwnersDoNotConcernEachOther(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	do(t, os.Mkdir(a, 0o700), os.Mkdir(b, 0o700))
	playIn(t, dir, []string{a + "=d,d-*", b + "=e", dir + "/c.yaml"}, rulefile.Options{}, []step{
		{"start", map[string]string{"a/1.yaml": rulesFor("d", 1), "a/2.yaml": rulesFor("d-2", 1),
			"b/1.yaml": rulesFor("e", 1), "c.yaml": rulesFor("f", 1)}, "d=1,d-2=1,e=1,f=1", "", ""},
		{"one takes a domain of another", map[string]string{"a/3.yaml": rulesFor("e", 9), "b/1.yaml": rulesFor("e", 2)},
			"d=1,d-2=1,e=2,f=1", "3.yaml", ""},
		{"who has no list does so", map[string]string{"c.yaml": rulesFor("e", 9), "a/3.yaml": "",
			"b/1.yaml": rulesFor("e", 3)}, "d=1,d-2=1,e=3,f=1", "c.yaml", "f"},
		{"a domain goes meanwhile", map[string]string{"a/2.yaml": ""}, "d=1,e=3,f=1", "c.yaml", "f"},
		{"errors of one keep no domain of another", map[string]string{"c.yaml": rulesFor("f", 2), "b/1.yaml": "domain: [",
			"a/1.yaml": rulesFor("d-3", 1)}, "d-3=1,e=3,f=2", "1.yaml", "e"},
		{"but its own", map[string]string{"b/1.yaml": rulesFor("e", 4), "a/1.yaml": "domain: ["}, "d-3=1,e=4,f=2", "1.yaml",
			"d-3"},
	})
}

// At the start a domain whose file has errors has no rules: nobody is let through for that.
func TestDomainsOfFilesWithErrorsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, list, broken string
		absent             Absent
		refused, open      string // domains
	}{
		{"owned", "=d,d-*", "domain: [", RefuseOwned, "d d-1 d-", "e dd"},
		{"owned, by its name", "=d,d-*", "domain: d-1\n" + brokenRule, RefuseOwned, "d-1", "d d-2"},
		{"owned, another's domain", "=d", "domain: e\n" + brokenRule, RefuseOwned, "d", "x"},
		{"owned and allowed", "=d,d-*", "domain: [", AllowAll, "", "d d-1"},
		{"not owned", "", "domain: d\n" + brokenRule, RefuseOwned, "", "d"},
		{"not owned and refused", "", "domain: d\n" + brokenRule, RefuseAll, "d", "x"},
		{"not owned, unknown and refused", "", "domain: [", RefuseAll, "d x", ""},
	} {
		dir := t.TempDir()
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		do(t, os.Mkdir(a, 0o700), os.Mkdir(b, 0o700))
		write(t, filepath.Join(a, "a.yaml"), c.broken)
		write(t, filepath.Join(b, "b.yaml"), rulesFor("good", 1))
		w := New([]string{a + c.list, b}, Options{Log: slog.New(slog.DiscardHandler), Skip: true,
			Absent: c.absent, Settle: -1})
		set, _, err := w.Load()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		refuses := func(domain string) bool {
			var m descriptors.Match
			set.Match(domain, []descriptors.Entry{{Key: "k", Value: "v"}, {Key: "l"}}, &m)
			return m.Domain && m.Rule != nil && m.Rule.Limits[0].Limit.Max() == 0 && m.Group != ""
		}
		for _, domain := range strings.Fields(c.refused) {
			if !refuses(domain) {
				t.Errorf("%s: %q is not refused", c.name, domain)
			}
		}
		for _, domain := range append(strings.Fields(c.open), "good") {
			if refuses(domain) {
				t.Errorf("%s: %q is refused", c.name, domain)
			}
		}
		write(t, filepath.Join(a, "a.yaml"), rulesFor("d", 1))
		w.opt.OnChange = func(s *descriptors.Set, _ []descriptors.Problem) { set = s }
		w.reload()
		if describeSet(set) != "d=1,good=1" || refuses("d") || refuses("d-1") {
			t.Errorf("%s: mended, it is %s", c.name, describeSet(set))
		}
	}
}
