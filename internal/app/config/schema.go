package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
)

// Schema returns a JSON Schema for every setting but those left out, by the names that
// a file has for them. A name among those left out that is no setting is an error.
func Schema(leftOut []string) (map[string]any, error) {
	for _, name := range leftOut {
		if !new(Config).program().has(name) {
			return nil, fmt.Errorf("unknown setting %s", name)
		}
	}
	properties := map[string]any{}
	for _, s := range new(Config).table() {
		if !slices.Contains(leftOut, s.flag) {
			properties[s.flag] = s.schema()
		}
	}
	return properties, nil
}

// schema is the JSON Schema of a setting's value.
func (s setting) schema() map[string]any {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.define(fs)
	_, usage := pflag.UnquoteUsage(fs.Lookup(s.flag))
	m := map[string]any{"description": usage}
	switch s.field.(type) {
	case *bool:
		m["type"] = "boolean"
	case *int:
		m["type"] = "integer"
	case *time.Duration:
		m["type"], m["pattern"] = "string", `^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$`
	case *[]string:
		m["type"] = []string{"string", "array"}
		m["items"] = map[string]any{"type": "string"}
	default:
		m["type"] = "string"
	}
	if s.words != nil {
		m["enum"] = s.words
	}
	return m
}
