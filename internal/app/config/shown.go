package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// hidden stands for a secret.
const hidden = "***"

// A Shown is a setting that is not at its default, with its secrets hidden.
type Shown struct {
	Flag   string
	Values []string // one, except for settings that may be repeated
	Many   bool     // it may be repeated
}

// Show returns the settings of fs that somebody has set, in the order of the documentation.
func Show(fs *pflag.FlagSet) []Shown {
	var list []Shown
	for _, s := range new(Config).table() {
		f := fs.Lookup(s.flag)
		if f == nil || !f.Changed {
			continue
		}
		shown := Shown{Flag: s.flag, Values: []string{f.Value.String()}}
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

// hide returns a value of the setting without its secrets.
func (s *setting) hide(value string) string {
	switch {
	case value == "" || s.secret == public:
		return value
	case s.secret == inURL:
		return hideInURL(value)
	}
	return hidden
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
