package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Table renders every setting as a Markdown table, for docs/reference.md.
func Table() string { return new(Config).program().markdown() }

func (p program) markdown() string {
	fs := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	p.define(fs)
	fs.SortFlags = false
	var b strings.Builder
	b.WriteString("| flag and file key | environment | default | meaning |\n|---|---|---|---|\n")
	fs.VisitAll(func(f *pflag.Flag) {
		_, usage := pflag.UnquoteUsage(f)
		def := f.DefValue
		if f.Value.Type() == "stringArray" {
			def = ""
		}
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", f.Name, p.envName(f.Name), def, strings.ReplaceAll(usage, "|", `\|`))
	})
	return b.String()
}
