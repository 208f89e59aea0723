// Package wired tests that settings reach what they are about.
package wired

import (
	"reflect"
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// Check fails for each setting of a program that is not tested elsewhere and whose change does not change the effects.
// Each call of make returns the program with settings of its own, and what returns their effects.
func Check(t *testing.T, make func() (p settings.Program, effects func() any), elsewhere ...string) {
	t.Helper()
	all, _ := make()
	for _, name := range elsewhere {
		if !slices.ContainsFunc(all.Rows, func(row settings.Setting) bool { return row.Name == name }) {
			t.Errorf("--%s is no setting", name)
		}
	}
	for _, row := range all.Rows {
		if slices.Contains(elsewhere, row.Name) {
			continue
		}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		p, effects := make()
		p.Define(fs)
		before, value := effects(), other(fs.Lookup(row.Name), row.Words)
		if !reflect.DeepEqual(effects(), before) {
			t.Fatal("effects cannot be compared")
		}
		if err := fs.Set(row.Name, value); err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(effects(), before) {
			t.Errorf("--%s=%s changes nothing", row.Name, value)
		}
	}
}

// other returns a value that is not the default; of several words, the last one.
func other(f *pflag.Flag, words []string) string {
	for _, word := range slices.Backward(words) {
		if word != f.DefValue {
			return word
		}
	}
	switch f.Value.Type() {
	case "bool":
		return map[string]string{"false": "true", "true": "false"}[f.DefValue]
	case "duration":
		return "77s"
	case "int":
		return "7"
	}
	return "x-other"
}
