package rulefile

import (
	_ "embed"
)

//go:embed rules.schema.json
var schema []byte

// Schema returns the JSON Schema of a file of rules, for editors. It accepts
// what Load does, but for yes, no, on and off, which only YAML 1.1 takes for
// true and false. What a schema cannot express, such as duplicates, Load alone
// refuses.
func Schema() []byte { return schema }
