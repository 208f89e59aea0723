package repo

import (
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	changeIt  = "# To change it"
	mostOfLaw = 5 // sentences
)

var (
	sentenceEnd = regexp.MustCompile(`[.!?]\)?(\s|$)`)
	changeItem  = regexp.MustCompile(`^(.+?): (.+?); ((?:go test|make) .+)$`)
	namedFile   = regexp.MustCompile(`[\w./*<>-]*(?:/[\w*<>-]+|\.(?:go|lua|md|sql|json|yaml|yml|sh))\b`)
	placeholder = regexp.MustCompile(`<\w+>`)
)

// checkDoc holds the comment of a package to its form: the law, how to change the package, and more.
func checkDoc(name, doc string, exists, isPackage func(string) bool) (found []string) {
	law, rest, ok := strings.Cut(doc, "\n"+changeIt+"\n")
	if !ok {
		return []string{fmt.Sprintf("%s: its doc.go lacks %q", name, changeIt)}
	}
	if n := len(sentenceEnd.FindAllString(law, -1)); n > mostOfLaw || n == 0 || strings.Contains(law, "\n#") {
		found = append(found, fmt.Sprintf("%s: %d sentences stand before %q, want 1 to %d", name, n, changeIt, mostOfLaw))
	}
	list, _, _ := strings.Cut(rest, "\n# ")
	items := itemsOf(list)
	if len(items) == 0 {
		found = append(found, fmt.Sprintf("%s: nothing stands below %q", name, changeIt))
	}
	for _, item := range items {
		m := changeItem.FindStringSubmatch(item)
		if m == nil {
			found = append(found, fmt.Sprintf("%s: %q is not of the form WHAT: FILES; go test PACKAGES", name, item))
			continue
		}
		files := placeholder.ReplaceAllString(m[2], "*")
		for _, file := range namedFile.FindAllString(files, -1) {
			if !exists(file) {
				found = append(found, fmt.Sprintf("%s: there is no file %s", name, file))
			}
		}
		for _, word := range strings.Fields(m[3]) {
			pattern := strings.TrimRight(word, ",;")
			if strings.HasPrefix(pattern, "./") && !isPackage(pattern) {
				found = append(found, fmt.Sprintf("%s: go test %s tests no package", name, pattern))
			}
		}
	}
	return found
}

// itemsOf returns the items of a list, each as one line.
func itemsOf(list string) (items []string) {
	for line := range strings.Lines(list) {
		text := strings.TrimSpace(line)
		switch first, isItem := strings.CutPrefix(text, "- "); {
		case isItem:
			items = append(items, first)
		case text != "" && len(items) > 0:
			items[len(items)-1] += " " + text
		}
	}
	return items
}

// TestPackagesSayHowToChangeThem: the comment of each package of the product begins with its law and with where to
// change what, and all that it names exists.
func TestPackagesSayHowToChangeThem(t *testing.T) {
	dir := root(t)
	list := packages(t, dir)
	isPackage := func(pattern string) bool {
		path, below := strings.CutSuffix(filepath.ToSlash(filepath.Clean(pattern)), "/...")
		path = strings.TrimPrefix(path, ".")
		return slices.ContainsFunc(list, func(p pkg) bool {
			return p.path == path || below && within(p.path, path)
		})
	}
	seen := 0
	for _, p := range list {
		if slices.Contains(outside, roomOf(p.path)) {
			continue
		}
		seen++
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, p.path, "doc.go"), nil,
			parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", p.path, err)
			continue
		}
		exists := func(name string) bool {
			for _, place := range []string{filepath.Join(dir, p.path), dir} {
				if found, err := filepath.Glob(filepath.Join(place, name)); err == nil && len(found) > 0 {
					return true
				}
			}
			return false
		}
		for _, finding := range checkDoc(p.path, file.Doc.Text(), exists, isPackage) {
			t.Error(finding)
		}
	}
	if seen < 80 {
		t.Errorf("only %d packages were looked at", seen)
	}
}

func TestFormOfPackageComments(t *testing.T) {
	isA := func(name string) bool { return name == "a.go" || name == "./a" || name == "sql/*.sql" }
	const law = "Package a is a.\n\n# To change it\n\n"
	for _, c := range []struct{ doc, want string }{
		{law + "  - how: a.go; go test ./a -run 'B|C'\n\n# More\n\nb.go is not looked at.\n", ""},
		{law + "  - how: a.go,\n    sql/<dialect>.sql; go test ./a\n", ""},
		{"Package a is a.\n", "lacks"},
		{"A. B. C. D. E. F.\n\n# To change it\n\n  - how: a.go; go test ./a\n", "6 sentences"},
		{law, "nothing stands below"},
		{law + "  - how: a.go\n", "not of the form"},
		{law + "  - how: b.go; go test ./a\n", "no file b.go"},
		{law + "  - how: a.go; go test ./a ./b\n", "go test ./b tests no package"},
	} {
		expect(t, c.doc, checkDoc("a", c.doc, isA, isA), c.want)
	}
}
