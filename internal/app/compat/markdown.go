package compat

import (
	"fmt"
	"strings"
)

// Table renders what becomes of each variable of the reference as a Markdown table, for
// docs/migrate.md.
func Table() string {
	makes := map[string][]string{}
	for i := range mappings {
		for _, name := range mappings[i].from {
			makes[name] = append(makes[name], "`--"+mappings[i].flag+"`")
		}
	}
	for i := range exports {
		for _, name := range exports[i].from {
			makes[name] = append(makes[name], "`"+exports[i].name+"`")
		}
	}
	var b strings.Builder
	b.WriteString("| variable | default of the reference | headgate |\n|---|---|---|\n")
	for i := range variables {
		v := &variables[i]
		var what []string
		switch v.effect {
		case Mapped:
			what = append(what, strings.Join(makes[v.name], ", "))
		case Warned:
			what = append(what, "a warning: ")
		case Ignored:
			what = append(what, "ignored: ")
		case Refused:
			what = append(what, "true is an error: ")
		}
		if v.note != "" {
			if v.effect == Mapped {
				what = append(what, "; ")
			}
			what = append(what, v.note)
		}
		byDefault := v.byDefault
		if byDefault != "" {
			byDefault = "`" + byDefault + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.name, byDefault, strings.ReplaceAll(strings.Join(what, ""), "|", `\|`))
	}
	return b.String()
}
