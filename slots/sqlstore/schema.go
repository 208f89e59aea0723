package sqlstore

import (
	"context"
	"embed"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

//go:embed migrations
var migrationFiles embed.FS

// schema is what slots keep: scripts in a folder for each dialect.
func schema() sqldb.Schema {
	return sqldb.Schema{
		Files:     migrationFiles,
		History:   "RL_SCHEMA_HISTORY",
		Flyway:    true,
		Packages:  []string{"RL_SLOT_API"},
		Functions: []string{"RL_CONFIG_HELD", "RL_NOW", "RL_TS", "RL_TXT", "RL_ADD_MS"},
	}
}

// Migrate implements slots.Store: it runs the scripts that the history in the
// database, RL_SCHEMA_HISTORY, lacks. Only one process does at a time; others
// wait, and find the work done. A schema that Flyway made is taken over as it is, and so
// are tables that were made by hand after the documented schema: version 1 does not change
// existing tables.
//
// It is an error if a script that was applied has changed since, or if the
// database is ahead of this program.
func (db *DB) Migrate(ctx context.Context) (applied []string, err error) {
	applied, err = db.sql.Migrate(ctx, schema())
	return applied, storeError(err)
}

// Print returns all scripts for the database of a scheme, such as "postgres" or
// "mariadb", as one that its own client program can run on an empty schema. They
// note themselves in RL_SCHEMA_HISTORY, so that Migrate finds nothing to do.
func Print(scheme string) (string, error) { return schema().Print(scheme) }
