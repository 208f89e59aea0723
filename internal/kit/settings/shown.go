package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Usage renders the flags of each group under its name, for the help of a command.
func (p Program) Usage(flags *pflag.FlagSet) string {
	var b strings.Builder
	for i := 0; i < len(p.Rows); {
		group := pflag.NewFlagSet("", pflag.ContinueOnError)
		group.SortFlags = false
		name := p.Rows[i].Group
		for ; i < len(p.Rows) && p.Rows[i].Group == name; i++ {
			group.AddFlag(flags.Lookup(p.Rows[i].Name))
		}
		fmt.Fprintf(&b, "%s:\n%s\n", name, group.FlagUsagesWrapped(100))
	}
	return b.String()
}

// hidden stands for a secret.
const hidden = "***"

// A Shown is a setting that is not at its default, with its secrets hidden.
type Shown struct {
	Flag   string
	Values []string // one, except for settings that may be repeated
	Many   bool     // it may be repeated
}

// Show returns the settings of fs that somebody has set, in the order of the documentation.
func (p Program) Show(fs *pflag.FlagSet) (list []Shown) {
	for _, s := range p.Rows {
		f := fs.Lookup(s.Name)
		if f == nil || !f.Changed {
			continue
		}
		shown := Shown{Flag: s.Name, Values: []string{f.Value.String()}}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			shown.Values, shown.Many = slices.Clone(many.GetSlice()), true
		}
		for i, v := range shown.Values {
			shown.Values[i] = s.hide(v)
		}
		list = append(list, shown)
	}
	return list
}

// hide hides the secret in a value.
func (s *Setting) hide(value string) string {
	switch {
	case s.secret == inURL:
		return hideInURL(value)
	case s.secret == whole && value != "":
		return hidden
	}
	return value
}

// Hide returns the arguments of a command with the secrets of settings hidden.
func (p Program) Hide(args []string) []string {
	args = slices.Clone(args)
	for _, s := range p.Rows {
		if !s.HasSecret() {
			continue
		}
		for i, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--"+s.Name+"="); ok {
				args[i] = "--" + s.Name + "=" + s.hide(value)
			} else if i > 0 && args[i-1] == "--"+s.Name {
				args[i] = s.hide(arg)
			}
		}
	}
	return args
}

var secretParam = regexp.MustCompile(`(?i)([?&;][^=&;]*(?:password|secret|token)[^=&;]*=)[^&]*`)

// hideInURL hides the password of a URL, and parameters whose names say that they are secrets.
func hideInURL(value string) string {
	scheme, rest, ok := strings.Cut(value, "://")
	if strings.ContainsAny(strings.TrimPrefix(scheme, "jdbc:"), ":/@") { // :// is in the password
		ok = false
	}
	if !ok {
		scheme, rest = "", value
	}
	authority, query := rest, ""
	if i := strings.IndexByte(rest, '?'); i >= 0 && i > strings.LastIndexByte(rest, '@') {
		authority, query = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, _, both := strings.Cut(authority[:i], ":")
		if both {
			user += ":" + hidden
		}
		authority = user + authority[i:]
	}
	if ok {
		scheme += "://"
	}
	return secretParam.ReplaceAllString(scheme+authority+query, "${1}"+hidden)
}
