package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// A program is what has a table of settings: how its environment variables begin, and the
// rows.
type program struct {
	prefix  string
	rows    []setting
	ignored []alias // settings of another program that have no effect
	// families are variables whose names begin with one text.
	families []family
}

// A family is variables whose names begin with a prefix. read takes the rest of a name, and the value.
type family struct {
	prefix string
	read   func(name, value string) error
}

// fillFamilies reads the variables of all families.
func (p program) fillFamilies(e environment) (errs []error) {
	for _, f := range p.families {
		for _, variable := range slices.Sorted(maps.Keys(e)) {
			name, ok := strings.CutPrefix(variable, f.prefix)
			if !ok {
				continue
			}
			if err := f.read(name, e[variable]); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", variable, err))
			}
		}
	}
	return errs
}

// inFamily reports whether a variable is one of a family.
func (p program) inFamily(variable string) bool {
	return slices.ContainsFunc(p.families, func(f family) bool { return strings.HasPrefix(variable, f.prefix) })
}

// define declares a flag for every setting.
func (p program) define(fs *pflag.FlagSet) {
	for _, s := range p.rows {
		s.define(fs)
	}
}

// names returns the names of all settings, in the order of the table.
func (p program) names() []string {
	var names []string
	for _, s := range p.rows {
		names = append(names, s.flag)
	}
	return names
}

// has says whether a flag is a setting of the program. Commands have flags of their own
// beside, which neither the environment nor a file sets.
func (p program) has(name string) bool { return slices.Contains(p.names(), name) }
