package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

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

// Markdown renders every setting as a table for each group, for the documentation.
func (p Program) Markdown() string {
	var b strings.Builder
	for i, s := range p.Rows {
		if i == 0 || s.Group != p.Rows[i-1].Group {
			if s.Group != "" {
				fmt.Fprintf(&b, "%s### %s\n\n", map[bool]string{true: "\n"}[i > 0], s.Group)
			}
			b.WriteString("| flag and file key | environment | default | meaning |\n|---|---|---|---|\n")
		}
		f, usage := s.flag()
		def := f.DefValue
		if repeated(f) {
			def = ""
		}
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", s.Name, p.EnvName(s.Name), def, strings.ReplaceAll(usage, "|", `\|`))
	}
	return b.String()
}

// flag returns a flag of the setting, and its meaning.
func (s *Setting) flag() (f *pflag.Flag, usage string) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.define(fs)
	f = fs.Lookup(s.Name)
	_, usage = pflag.UnquoteUsage(f)
	return f, usage
}

// Schema returns a JSON Schema for every setting but those left out, by the names that a file has
// for them. A name among those left out that is no setting is an error.
func (p Program) Schema(leftOut []string) (map[string]any, error) {
	for _, name := range leftOut {
		if !p.Has(name) {
			return nil, fmt.Errorf("unknown setting %s", name)
		}
	}
	properties := map[string]any{}
	for _, s := range p.Rows {
		if !slices.Contains(leftOut, s.Name) {
			properties[s.Name] = s.schema()
		}
	}
	return properties, nil
}

// schema is the JSON Schema of a setting's value.
func (s *Setting) schema() map[string]any {
	_, usage := s.flag()
	m := map[string]any{"description": usage, "type": "string"}
	switch s.Field.(type) {
	case *bool:
		m["type"] = "boolean"
	case *int:
		m["type"] = "integer"
	case *time.Duration:
		m["pattern"] = `^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$`
	case *[]string:
		m["type"] = []string{"string", "array"}
		m["items"] = map[string]any{"type": "string"}
	}
	if s.Words != nil {
		m["enum"] = s.Words
	}
	return m
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
