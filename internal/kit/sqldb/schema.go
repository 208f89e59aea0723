package sqldb

import (
	"io/fs"
	"strings"
)

// A Schema is what an owner's migrations bring up to date: tables, and what goes with them.
//
// Files has the folder migrations, and in it one for each dialect, by its name, with scripts that are named as
// Flyway would: V1__what_it_does.sql are applied once, in order; R__what_it_makes.sql after them, and
// again when they have changed. A line that holds only "/" separates statements, which are
// sent as they are. In MySQL's, ${COLLATION} is one that compares bytes and does not pad.
type Schema struct {
	Files fs.FS
	// History is the table that notes which scripts were applied. It is made if it is not
	// there. Each owner in a database has one of its own.
	History string
	// Flyway: version 1 may have been applied by Flyway, and is taken over then.
	Flyway bool
	// Packages and Functions are what the scripts make that a database may accept although it
	// does not compile.
	Packages, Functions []string
}

// history fills in the name of the history's table.
func (schema Schema) history(text string, args ...any) Query {
	return Query{Text: strings.ReplaceAll(text, "${HISTORY}", schema.History), Args: args}
}
