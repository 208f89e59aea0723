package repo

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// formatsPage lists what outlives a process.
const formatsPage = "docs/formats.md"

// A formatRow is a row of that page.
type formatRow struct{ what, version, writers, readers, later string }

func formatRows(t *testing.T) (rows []formatRow) {
	for line := range strings.Lines(string(readFile(t, filepath.Join(root(t), formatsPage)))) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "what" {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, formatRow{cells[1], cells[2], cells[3], cells[4], cells[5]})
	}
	if len(rows) < 15 {
		t.Fatalf("%s has %d rows", formatsPage, len(rows))
	}
	return rows
}

var quoted = regexp.MustCompile("`([^`]+)`")

// TestFormatsAreComplete: each row says who writes and reads it, in files that there are, and what becomes of a later
// version.
func TestFormatsAreComplete(t *testing.T) {
	for _, r := range formatRows(t) {
		for _, cell := range []string{r.what, r.version, r.writers, r.readers, r.later} {
			if cell == "" {
				t.Errorf("%s: a cell is empty", r.what)
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(r.writers, -1) {
			if _, err := os.Stat(filepath.Join(root(t), m[1])); err != nil {
				t.Errorf("%s: %v", r.what, err)
			}
		}
	}
}

// writersIn returns the files that rows name as writers.
func writersIn(rows []formatRow) map[string]bool {
	files := map[string]bool{}
	for _, r := range rows {
		for _, m := range quoted.FindAllStringSubmatch(r.writers, -1) {
			files[m[1]] = true
		}
	}
	return files
}

// notStored are files of the product that make something which no other process reads.
var notStored = map[string]string{
	"cmd/headgate/replay.go":       "a report for a person",
	"internal/app/replay/run.go":   "a copy that is removed when the command ends",
	"internal/kit/sqldb/sqlite.go": "the file is SQLite's, and what is in it has rows of its own",
}

// TestFormatsHaveAllWriters finds the code that writes files, signs tokens or writes rows that replicas share, and the
// scripts that write keys of Redis.
func TestFormatsHaveAllWriters(t *testing.T) {
	writers := writersIn(formatRows(t))
	found := 0
	check := func(file, how string) {
		found++
		if !writers[file] && notStored[file] == "" {
			t.Errorf("%s %s: it needs a row in %s, or a reason in notStored", file, how, formatsPage)
		}
	}
	eachProductFile(t, func(file string, text []byte) {
		switch path.Ext(file) {
		case ".go":
			if how := writesIn(t, file, text); how != "" {
				check(file, how)
			}
		case ".lua":
			if redisWrite.Match(text) {
				check(file, "writes keys of Redis")
			}
		}
	})
	if found < 15 {
		t.Errorf("only %d writers were found", found)
	}
}

// redisWrite is a command of a script that leaves something in Redis.
var redisWrite = regexp.MustCompile(`['"](SET|SETRANGE|INCRBY|HSET|HINCRBY|RPUSH|LSET|ZADD)['"]`)

// outliving are the calls that make what outlives a process, by package.
var outliving = map[string]string{
	"os.WriteFile": "writes a file", "os.Create": "writes a file", "os.CreateTemp": "writes a file",
	"os.OpenFile": "writes a file", "os.Rename": "writes a file", "hmac.New": "signs",
}

// writesIn returns how a Go file makes something that outlives the process, or nothing.
func writesIn(t *testing.T, name string, text []byte) (how string) {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		var of string
		switch x := sel.X.(type) {
		case *ast.Ident:
			of = x.Name
		case *ast.SelectorExpr:
			of = x.Sel.Name
		}
		if kind := outliving[of+"."+sel.Sel.Name]; kind != "" {
			how = kind
		}
		if strings.EqualFold(of, "registry") && (sel.Sel.Name == "Put" || sel.Sel.Name == "Claim") {
			how = "writes rows that replicas share"
		}
		return true
	})
	return how
}

// eachProductFile calls f for each Go file and script of the product.
func eachProductFile(t *testing.T, f func(file string, text []byte)) {
	dir := root(t)
	skip := map[string]bool{"test": true, "tools": true, "examples": true, "bin": true, "backendtest": true,
		"testdata": true, "slotstest": true, ".git": true}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && skip[d.Name()] {
			return filepath.SkipDir
		}
		if ext := path.Ext(file); d.IsDir() || ext != ".go" && ext != ".lua" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err == nil {
			f(filepath.ToSlash(rel), text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var createTable = regexp.MustCompile(`(?i)CREATE TABLE (?:IF NOT EXISTS )?(\w+)`)

// TestFormatsHaveAllTables: each table that a migration makes has a row, and that row the version of the schema.
func TestFormatsHaveAllTables(t *testing.T) {
	rows := formatRows(t)
	folders, err := filepath.Glob(filepath.Join(root(t), "*/*/migrations"))
	if err != nil || len(folders) < 4 {
		t.Fatalf("%v, %v", folders, err)
	}
	for _, folder := range folders {
		rel, err := filepath.Rel(root(t), folder)
		if err != nil {
			t.Fatal(err)
		}
		var row *formatRow
		for i := range rows {
			if strings.Contains(rows[i].writers, "`"+filepath.ToSlash(rel)+"`") {
				row = &rows[i]
			}
		}
		if row == nil {
			t.Errorf("%s has no row in %s", rel, formatsPage)
			continue
		}
		latest := map[string]int{} // by dialect
		files, _ := filepath.Glob(filepath.Join(folder, "*", "*.sql"))
		for _, file := range files {
			dialect := filepath.Base(filepath.Dir(file))
			var n int
			if _, err := fmt.Sscanf(filepath.Base(file), "V%d__", &n); err == nil {
				latest[dialect] = max(latest[dialect], n)
			}
			for _, m := range createTable.FindAllSubmatch(readFile(t, file), -1) {
				if name := string(m[1]); !strings.HasSuffix(name, "_NEW") && !strings.Contains(row.what, "`"+name+"`") {
					t.Errorf("%s: the row for %s lacks the table %s", formatsPage, rel, name)
				}
			}
		}
		for dialect, n := range latest {
			if !regexp.MustCompile(`\b` + strconv.Itoa(n) + `\b`).MatchString(row.version) {
				t.Errorf("%s: %s has schema %d on %s, and its row says %q", formatsPage, rel, n, dialect, row.version)
			}
		}
	}
}

// TestFormatsHaveTheVersions of the code.
func TestFormatsHaveTheVersions(t *testing.T) {
	page := readFile(t, filepath.Join(root(t), formatsPage))
	for file, c := range map[string]struct{ code, page string }{
		"limit/encode.go":           {`(?m)^const stateVersion = (\d+)$`, "| `stateVersion` %s "},
		"ratelimit/leases/token.go": {`(?m)^\tversion = (\d+)$`, "| `version` %s "},
		"descriptors/xds/cache.go":  {`(?m)^const cacheHead = "(headgate xds cache \d+)\\n"$`, "| `%s` "},
	} {
		m := regexp.MustCompile(c.code).FindSubmatch(readFile(t, filepath.Join(root(t), file)))
		if m == nil {
			t.Errorf("%s has no version of the form %s", file, c.code)
			continue
		}
		if want := fmt.Sprintf(c.page, m[1]); !bytes.Contains(page, []byte(want)) {
			t.Errorf("%s lacks %q, as %s has it", formatsPage, want, file)
		}
	}
}
