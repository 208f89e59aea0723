package repo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/headgate-rls/headgate"

// pkg is a package of this repository and what its non-test files import.
type pkg struct {
	path    string // without the module, such as "backends/redis"
	imports []string
	linked  []string // those of imports that no file uses, as they are imported as "_"
}

// within reports whether path is dir or below it.
func within(path string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return path == dir || strings.HasPrefix(path, dir+"/")
	})
}

// ours returns the path inside this module, or false for other modules and the
// standard library.
func ours(imported string) (string, bool) {
	if imported == module {
		return "", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// fromStandardLibrary uses the rule that other paths start with a host.
func fromStandardLibrary(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// registering are the files that may have an init function, by which a store, or what follows files, is known to a
// program that imports it.
var registering = []string{"backends/memory/kind.go", "backends/redis/kind.go", "backends/sqlstore/kind.go",
	"backends/dynamodb/kind.go", "policies/sqlstore/source.go", "descriptors/watch/watch.go"}

// clockFree are the directories in which time comes in from outside, and
// clockAllowed the packages below them that measure durations or own the clock.
var (
	clockFree    = []string{"limit", "backends", "slots/plan"}
	clockAllowed = []string{"backends/backendtest", "backends/layers/observe", "backends/layers/coalesce",
		"backends/stack"}
)

// checkSource holds one file to the rules about what is in it; name is its path
// inside the repository.
func checkSource(name string, src []byte) []string {
	var found []string
	formatted, err := format.Source(src)
	if err != nil {
		return []string{fmt.Sprintf("%s does not parse: %v", name, err)}
	}
	if !bytes.Equal(src, formatted) {
		found = append(found, name+" is not formatted: run gofmt -w "+name)
	}
	if strings.HasSuffix(name, "_test.go") {
		return found
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return append(found, fmt.Sprintf("%s does not parse: %v", name, err))
	}
	if ast.IsGenerated(file) {
		return found
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" && !matchesAny(registering, name) {
			found = append(found, fmt.Sprintf(
				"%s: init functions run behind everyone's back: call it from main or a constructor", files.Position(f.Pos())))
		}
	}
	dir := path.Dir(name)
	if within(dir, clockFree...) && !within(dir, clockAllowed...) {
		found = append(found, clockReads(files, file)...)
	}
	if within(dir, goroutineSafe...) && !within(dir, goroutineFree...) {
		found = append(found, bareGoroutines(files, file)...)
	}
	return append(found, checkLogs(name, files, file)...)
}

// goroutineSafe are the directories in which a panic must not end the process,
// and goroutineFree the packages below them that are for tests.
var (
	goroutineSafe = []string{"backends", "ratelimit", "internal/wire"}
	goroutineFree = []string{"backends/backendtest", "backends/internal/remote"}
)

// bareGoroutines finds goroutines that are not started by package background: go
// statements, calls of WaitGroup.Go and of time.AfterFunc.
func bareGoroutines(files *token.FileSet, file *ast.File) (found []string) {
	report := func(n ast.Node, what string) {
		found = append(found, fmt.Sprintf("%s: %s: a panic there ends the process; use internal/kit/background",
			files.Position(n.Pos()), what))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "go statement")
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if ok && (f.Sel.Name == "Go" || f.Sel.Name == "AfterFunc") && !isReporter(f.X) {
				report(n, "call of "+f.Sel.Name)
			}
		}
		return true
	})
	return found
}

// isReporter looks at the name that reporters have: a field or variable panics.
func isReporter(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "panics")
	case *ast.Ident:
		return strings.EqualFold(x.Name, "panics")
	}
	return false
}

// clockReads finds every mention of time.Now and time.Since, called or handed
// on as a value.
func clockReads(files *token.FileSet, file *ast.File) []string {
	name := ""
	for _, i := range file.Imports {
		if i.Path.Value == `"time"` {
			name = "time"
			if i.Name != nil {
				name = i.Name.Name
			}
		}
	}
	if name == "" {
		return nil
	}
	const why = "the instant comes in from the caller here, so that every store decides alike and tests own the clock"
	var found []string
	if name == "." {
		found = append(found, fmt.Sprintf("%s: time is imported with a dot, which hides reads of the clock",
			files.Position(file.Name.Pos())))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "Now" && s.Sel.Name != "Since" {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == name {
			found = append(found, fmt.Sprintf("%s: time.%s: %s", files.Position(s.Pos()), s.Sel.Name, why))
		}
		return true
	})
	return found
}

// root is the directory of the repository.
func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		t.Fatalf("go list -m: %v", describe(err))
	}
	name, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if name != module {
		t.Fatalf("the module is %s, but the rules here are written for %s", name, module)
	}
	return dir
}

// describe adds what a command wrote to its standard error.
func describe(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return err
}

// packages lists the packages of the repository. Files that build constraints
// leave out count too: their imports are imports on another system.
func packages(t *testing.T, dir string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,CgoFiles,IgnoredGoFiles", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", describe(err))
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l struct {
			ImportPath, Dir                   string
			GoFiles, CgoFiles, IgnoredGoFiles []string
		}
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("read the answer of go list: %v", err)
		}
		p := pkg{path: strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, module), "/")}
		for _, name := range slices.Concat(l.GoFiles, l.CgoFiles, l.IgnoredGoFiles) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			used, linked, err := importsOf(filepath.Join(l.Dir, name))
			if err != nil {
				t.Errorf("%s: %v", p.path, err)
			}
			p.imports, p.linked = append(p.imports, used...), append(p.linked, linked...)
		}
		p.linked = slices.DeleteFunc(p.linked, func(path string) bool { return slices.Contains(p.imports, path) })
		p.imports = append(p.imports, p.linked...)
		slices.Sort(p.imports)
		p.imports = slices.Compact(p.imports)
		all = append(all, p)
	}
}

// importsOf returns what a file imports to use it, and what only to link it: as "_".
func importsOf(file string) (used, linked []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		return nil, nil, err
	}
	for _, i := range f.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		if i.Name != nil && i.Name.Name == "_" {
			linked = append(linked, imported)
		} else {
			used = append(used, imported)
		}
	}
	return used, linked, nil
}

// goFiles lists all Go files of the repository, tests and all.
func goFiles(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if file != dir && (strings.HasPrefix(name, ".") || name == "testdata" || name == "vendor" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") {
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
