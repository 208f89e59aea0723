package oracletest

import (
	"regexp"
	"strings"
)

var sqlPlus = regexp.MustCompile(`(?m)^(SET |WHENEVER |SHOW |EXIT|COMMIT).*\n`)

// Printed are the statements of a script for SQL*Plus, without comments and its own commands.
func Printed(script string) (all []string) {
	for _, part := range strings.Split(sqlPlus.ReplaceAllString(script, ""), "\n/\n") {
		if part = Uncommented(part); part != "" && part != "/" {
			all = append(all, part)
		}
	}
	return all
}
