package repo

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var release = flag.String("release", "",
	"move the entries of changelog/unreleased into CHANGELOG.md, under this version")

// Where entries wait for a release, one file for each change, in a folder for
// each section.
const unreleased = "changelog/unreleased"

// sections are the parts of a release in CHANGELOG.md, by folder.
var sections = []struct{ folder, title string }{
	{"limits", "Limits"},
	{"requests-in-flight", "Requests in flight"},
	{"operation", "Operation"},
	{"security", "Security"},
	{"slots", "Slots"},
}

// entries maps the path of each entry, such as slots/pgbouncer.md, to its text.
type entries map[string]string

func readEntries(dir fs.FS) (entries, error) {
	list := entries{}
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dir, name)
		list[name] = string(data)
		return err
	})
	return list, err
}

var entryName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*\.md$`)

// An entry is short: a reader of CHANGELOG.md has many to read.
const (
	maxEntryLine = 120
	maxEntry     = 400
)

// checkEntry returns what is wrong with one entry.
func checkEntry(name, text string) (found []string) {
	bad := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if !slices.ContainsFunc(sections, func(s struct{ folder, title string }) bool { return s.folder == path.Dir(name) }) {
		bad("unknown section %q", path.Dir(name))
	}
	if !entryName.MatchString(path.Base(name)) {
		bad("the file name must be lower-case words with hyphens and end in .md")
	}
	body, ok := strings.CutSuffix(text, ".\n")
	switch {
	case !ok:
		bad("an entry must end with a full stop and one line break")
	case strings.Contains(body, "\n\n"):
		bad("an entry must be one paragraph")
	case strings.ContainsAny(body[:min(1, len(body))], "#-* "):
		bad("an entry must begin with a word: no heading, no list")
	case utf8.RuneCountInString(text) > maxEntry:
		bad("an entry must have at most %d characters", maxEntry)
	}
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > maxEntryLine {
			bad("a line must have at most %d characters", maxEntryLine)
		}
	}
	return found
}

// assemble returns the part of CHANGELOG.md that has all entries.
func (e entries) assemble(heading string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n", heading)
	for _, s := range sections {
		var names []string
		for name := range e {
			if path.Dir(name) == s.folder {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "\n### %s\n\n", s.title)
		for _, name := range names {
			b.WriteString("- " + strings.ReplaceAll(strings.TrimSpace(e[name]), "\n", "\n  ") + "\n")
		}
	}
	return b.String()
}

// releasesMark is where CHANGELOG.md has its releases, the latest first.
const releasesMark = "<!-- releases -->\n"

// insert puts a release before the earlier ones.
func insert(changelog, part string) (string, error) {
	before, after, ok := strings.Cut(changelog, releasesMark)
	if !ok {
		return "", fmt.Errorf("CHANGELOG.md has no %q", releasesMark)
	}
	return before + releasesMark + "\n" + part + after, nil
}

// TestChangelogEntries: each file in changelog/unreleased is an entry. With
// -release VERSION the entries move into CHANGELOG.md.
func TestChangelogEntries(t *testing.T) {
	dir := filepath.Join(root(t), unreleased)
	list, err := readEntries(os.DirFS(dir))
	if errors.Is(err, fs.ErrNotExist) && *release == "" {
		return // nothing has changed since the last release
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range list {
		for _, finding := range checkEntry(name, text) {
			t.Errorf("%s/%s: %s", unreleased, name, finding)
		}
	}
	if *release == "" || t.Failed() {
		return
	}
	file := filepath.Join(root(t), "CHANGELOG.md")
	changed, err := insert(string(readFile(t, file)), list.assemble(*release+", "+time.Now().UTC().Format(time.DateOnly)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	writeRelease(t, *release)
}

func TestChangelogRules(t *testing.T) {
	long := strings.Repeat("word ", 23)
	for _, c := range []struct{ name, text, want string }{
		{"slots/x-1.md", "`--x` is new. It\ndoes y.\n", ""},
		{"slot/x.md", "A.\n", "unknown section"},
		{"x.md", "A.\n", "unknown section"},
		{"slots/a/x.md", "A.\n", "unknown section"},
		{"slots/X.md", "A.\n", "file name"},
		{"slots/x.txt", "A.\n", "file name"},
		{"slots/x.md", "", "full stop"},
		{"slots/x.md", "A\n", "full stop"},
		{"slots/x.md", "A.", "full stop"},
		{"slots/x.md", "- A.\n", "begin with a word"},
		{"slots/x.md", "A.\n\nB.\n", "one paragraph"},
		{"slots/x.md", long + "last.\n", ""},
		{"slots/x.md", long + "longer.\n", "at most 120"},
		{"slots/x.md", strings.Repeat(long+"\n", 4) + "x.\n", "at most 400"},
	} {
		expect(t, c.name+" "+c.text, checkEntry(c.name, c.text), c.want)
	}
}

// TestChangelogAssembly: a release has the sections in their order and only
// those that have entries, and stands before the earlier ones.
func TestChangelogAssembly(t *testing.T) {
	part := entries{"slots/b.md": "B\nmore.\n", "slots/a.md": "A.\n", "limits/z.md": "Z.\n"}.assemble("v2, 2030-01-02")
	got, err := insert("# Changelog\n\n"+releasesMark+"\n## v1, 2029-01-01\n", part)
	const want = "# Changelog\n\n" + releasesMark + "\n## v2, 2030-01-02\n\n### Limits\n\n- Z.\n\n### Slots\n\n- A.\n" +
		"- B\n  more.\n\n## v1, 2029-01-01\n"
	if err != nil || got != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
	}
	if _, err := insert("# Changelog\n", part); err == nil {
		t.Error("a changelog without the mark is changed")
	}
}
