// Package documented renders tables of the program as the documents have them. Only tests need that: they hold the
// documents to the tables.
package documented

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// Settings renders every setting of a program as a Markdown table for each group.
func Settings(p settings.Program) string {
	var b strings.Builder
	for i, s := range p.Rows {
		if i == 0 || s.Group != p.Rows[i-1].Group {
			if s.Group != "" {
				fmt.Fprintf(&b, "%s### %s\n\n", map[bool]string{true: "\n"}[i > 0], s.Group)
			}
			b.WriteString("| flag and file key | environment | default | meaning |\n|---|---|---|---|\n")
		}
		f, usage := flagOf(p, s.Name)
		def := f.DefValue
		if f.Value.Type() == "stringArray" {
			def = ""
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", s.Name, p.EnvName(s.Name), quoted(def), cell(usage))
	}
	return b.String()
}

// flagOf returns the flag of a setting, and its meaning.
func flagOf(p settings.Program, name string) (f *pflag.Flag, usage string) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.Define(fs)
	f = fs.Lookup(name)
	_, usage = pflag.UnquoteUsage(f)
	return f, usage
}

// quoted is a text as code, unless it is empty or has some.
func quoted(text string) string {
	if text == "" || strings.Contains(text, "`") {
		return text
	}
	return "`" + text + "`"
}

// cell keeps a text within its cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// Schema returns a JSON Schema for every setting but those left out, by the names that a file has
// for them. A name among those left out that is no setting is an error.
func Schema(p settings.Program, leftOut []string) (map[string]any, error) {
	for _, name := range leftOut {
		if !slices.Contains(p.Names(), name) {
			return nil, fmt.Errorf("unknown setting %s", name)
		}
	}
	properties := map[string]any{}
	for i := range p.Rows {
		if s := &p.Rows[i]; !slices.Contains(leftOut, s.Name) {
			properties[s.Name] = schema(p, s)
		}
	}
	return properties, nil
}

// schema is the JSON Schema of a setting's value.
func schema(p settings.Program, s *settings.Setting) map[string]any {
	_, usage := flagOf(p, s.Name)
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
