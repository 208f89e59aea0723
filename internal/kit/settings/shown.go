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
			switch {
			case s.secret == inURL:
				shown.Values[i] = hideInURL(v)
			case s.secret == whole && v != "":
				shown.Values[i] = hidden
			}
		}
		list = append(list, shown)
	}
	return list
}

var secretParam = regexp.MustCompile(`(?i)([?&;][^=&;]*(?:password|secret|token)[^=&;]*=)[^&;]*`)

// hideInURL hides the password of a URL, and parameters whose names say that they are secrets.
func hideInURL(value string) string {
	scheme, rest, ok := strings.Cut(value, "://")
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
	return scheme + authority + secretParam.ReplaceAllString(query, "${1}"+hidden)
}
