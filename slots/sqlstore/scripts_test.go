package sqlstore

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// A scriptFile is a script of a migration as its file has it.
type scriptFile struct{ name, text string }

// scriptsOf are the scripts for a database, in the order that they are applied in.
func scriptsOf(t testing.TB, d *sqldb.Dialect) (all []scriptFile) {
	t.Helper()
	files := schema().Files
	names, err := fs.Glob(files, "migrations/"+d.Name+"/*.sql")
	check(t, err)
	slices.Reverse(names) // what is repeatable to the end
	slices.SortStableFunc(names, func(a, b string) int {
		if strings.Contains(a, "/V") && strings.Contains(b, "/V") {
			return strings.Compare(a, b)
		}
		return 0
	})
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		check(t, err)
		all = append(all, scriptFile{strings.TrimPrefix(name, "migrations/"+d.Name+"/"), string(text)})
	}
	return all
}

// statements splits a script where lines hold only "/".
func (s scriptFile) statements(collation string) (all []string) {
	for _, text := range strings.Split("\n"+s.text, "\n/\n") {
		if text = strings.TrimSpace(strings.ReplaceAll(text, "${COLLATION}", collation)); text != "" {
			all = append(all, text)
		}
	}
	return all
}
