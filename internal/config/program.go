package config

import (
	"slices"

	"github.com/spf13/pflag"
)

// A program is what has a table of settings: how its environment variables begin, and the
// rows.
type program struct {
	prefix  string
	rows    []setting
	ignored []alias // settings of another program that have no effect
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
