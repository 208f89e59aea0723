package repo

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostAgainst bounds the share of a package's arrows that run against its layers, in percent.
const mostAgainst = 20

// TestFilesOfAPackageStandInLayers: an arrow is a file that uses an identifier of another file of its
// package. In the best order of the files, few arrows run from a lower file to a higher one.
func TestFilesOfAPackageStandInLayers(t *testing.T) {
	dir := root(t)
	files, err := goFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string][]string{}
	for _, file := range files {
		tools := strings.Contains(filepath.ToSlash(file), "/tools/") // modules of their own
		if !tools && !strings.HasSuffix(file, "_test.go") && !strings.HasSuffix(file, "_windows.go") {
			folders[filepath.Dir(file)] = append(folders[filepath.Dir(file)], file)
		}
	}
	seen := 0
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		source := map[string][]byte{}
		for _, file := range folders[folder] {
			source[filepath.Base(file)] = readFile(t, file)
		}
		found, err := arrowsOf(source)
		if err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
		seen += len(found)
		most := (mostAgainst*len(found) - 1) / 100
		if against := againstLayers(found, most); len(against) > most {
			t.Errorf("%s: %d of %d arrows between files run against the layers, and less than %d %% may: %v",
				folder, len(against), len(found), mostAgainst, against)
		}
	}
	if seen < 500 {
		t.Fatalf("only %d arrows are found, so something is wrong with the search", seen)
	}
}

// An arrow says that a file uses what another file declares.
type arrow struct{ from, to string }

func (a arrow) String() string { return a.from + " -> " + a.to }

// arrowsOf returns the arrows between the files of a package, in order.
func arrowsOf(source map[string][]byte) ([]arrow, error) {
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(source)) {
		file, err := parser.ParseFile(set, name, source[name], parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	// Names of other packages do not matter here, so that they are empty, and errors are ignored.
	conf := types.Config{Importer: emptyPackages{}, Error: func(error) {}, FakeImportC: true}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, _ := conf.Check("p", set, files, info)
	found := map[arrow]bool{}
	for id, used := range info.Uses {
		if used.Pkg() != pkg || !used.Pos().IsValid() {
			continue
		}
		if a := (arrow{set.Position(id.Pos()).Filename, set.Position(used.Pos()).Filename}); a.from != a.to {
			found[a] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b arrow) int { return strings.Compare(a.String(), b.String()) }),
		nil
}

type emptyPackages struct{}

func (emptyPackages) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, path[strings.LastIndexByte(path, '/')+1:])
	p.MarkComplete()
	return p, nil
}

// againstLayers looks for the order of files with the fewest arrows from a lower file to a higher one,
// and returns those. From many random orders it moves single files while that helps. It ends early at an
// order with no more than enough of them.
func againstLayers(arrows []arrow, enough int) (fewest []arrow) {
	var files []string
	for _, a := range arrows {
		files = append(files, a.from, a.to)
	}
	slices.Sort(files)
	files = slices.Compact(files)
	r := rand.New(rand.NewPCG(1, 1))
	for try := range 60 {
		r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
		order := slices.Clone(files)
		for moved := true; moved; {
			moved = false
			for _, file := range files {
				if better := placed(order, file, arrows); len(against(better, arrows)) < len(against(order, arrows)) {
					order, moved = better, true
				}
			}
		}
		if found := against(order, arrows); try == 0 || len(found) < len(fewest) {
			fewest = found
		}
		if len(fewest) <= enough {
			break
		}
	}
	return fewest
}

// placed returns order with one file where the fewest of its arrows run against the layers.
func placed(order []string, file string, arrows []arrow) []string {
	others := slices.DeleteFunc(slices.Clone(order), func(f string) bool { return f == file })
	uses, users := map[string]bool{}, map[string]bool{}
	for _, a := range arrows {
		switch file {
		case a.from:
			uses[a.to] = true
		case a.to:
			users[a.from] = true
		}
	}
	cost, least, at := len(uses), len(uses), 0 // at the bottom all that the file uses is above it
	for i, other := range others {
		if uses[other] {
			cost--
		}
		if users[other] {
			cost++
		}
		if cost < least {
			least, at = cost, i+1
		}
	}
	return slices.Insert(others, at, file)
}

// against returns the arrows from a lower to a higher file of an order, whose first file is the lowest.
func against(order []string, arrows []arrow) (found []arrow) {
	at := make(map[string]int, len(order))
	for i, file := range order {
		at[file] = i
	}
	for _, a := range arrows {
		if at[a.from] < at[a.to] {
			found = append(found, a)
		}
	}
	return found
}

func TestLayersOfFiles(t *testing.T) {
	file := func(text string) []byte { return []byte("package p\n\n" + text) }
	for _, c := range []struct {
		name   string
		source map[string][]byte
		arrows int
		want   string
	}{
		{"a chain", map[string][]byte{"c.go": file("func c() { b() }"), "b.go": file("func b() { a() }"),
			"a.go": file("func a() {}")}, 2, "[]"},
		{"a method and a field", map[string][]byte{"a.go": file("type a struct{ n int }\nfunc (a) m() {}"),
			"b.go": file("func b(x *a) int { x.m(); return x.n }")}, 1, "[]"},
		{"another package", map[string][]byte{"a.go": file("import \"os\"\nvar a = os.Args"), "b.go": file("var Args = 1")},
			0, "[]"},
		{"two that use each other", map[string][]byte{"a.go": file("func a() { b() }"), "b.go": file("func b() { a() }")}, 2,
			"1"},
		{"three in a circle", map[string][]byte{"a.go": file("func a() { b() }"), "b.go": file("func b() { c() }"),
			"c.go": file("func c() { a() }")}, 3, "1"},
	} {
		arrows, err := arrowsOf(c.source)
		if err != nil {
			t.Fatal(err)
		}
		got := againstLayers(arrows, 0)
		if len(arrows) != c.arrows || c.want == "[]" && len(got) > 0 || c.want != "[]" && fmt.Sprint(len(got)) != c.want {
			t.Errorf("%s: arrows %v, against the layers %v, want %d and %s", c.name, arrows, got, c.arrows, c.want)
		}
	}
}
