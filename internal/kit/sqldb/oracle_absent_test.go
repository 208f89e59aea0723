//go:build !godror

package sqldb

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// A program without the driver says so when it starts, and not at the first call.
func TestOracleAbsent(t *testing.T) {
	for _, url := range []string{"jdbc:oracle:thin:@localhost:1521/ORCLPDB1", "oracle://localhost:1521/ORCLPDB1"} {
		c := Config{URL: url, Username: "rate_limiter", Password: "hunter2"}
		_, _, err := parse(c)
		wantError(t, err, "built without Oracle", "whose name has -oracle", "-tags godror", "Oracle Instant Client")
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error has the password: %v", err)
		}
		if _, err := Open(c); err == nil {
			t.Error("it was opened all the same")
		}
	}
}

// The tag without cgo would leave the driver out without a word. The file that is
// built instead names something that does not exist, so that nothing is built.
func TestOracleNeedsCgo(t *testing.T) {
	files := func(cgo bool, tags ...string) []string {
		c := build.Default
		c.CgoEnabled, c.BuildTags = cgo, tags
		p, err := c.ImportDir(".", 0)
		check(t, err)
		return slices.DeleteFunc(append(p.GoFiles, p.CgoFiles...), func(name string) bool {
			return !slices.Contains([]string{"oracle_absent.go", "oracle_godror.go", "oracle_nocgo.go"}, name)
		})
	}
	for _, c := range []struct {
		files []string
		want  string
	}{
		{files(false), "oracle_absent.go"}, {files(true), "oracle_absent.go"},
		{files(true, "godror"), "oracle_godror.go"}, {files(false, "godror"), "oracle_nocgo.go"},
	} {
		if !slices.Equal(c.files, []string{c.want}) {
			t.Errorf("built are %q, want %s alone", c.files, c.want)
		}
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "oracle_nocgo.go", nil, 0)
	check(t, err)
	var undefined bool
	config := types.Config{Error: func(err error) { // also for imports, which are of no interest
		undefined = undefined || strings.Contains(err.Error(), "undefined: oracle_needs_CGO_ENABLED_1_for_the_tag_godror")
	}}
	_, _ = config.Check("sqldb", fset, []*ast.File{file}, nil)
	if !undefined {
		t.Error("oracle_nocgo.go compiles")
	}
}
