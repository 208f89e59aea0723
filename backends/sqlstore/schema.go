package sqlstore

import (
	"context"
	"embed"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

//go:embed migrations
var migrationFiles embed.FS

// schema is what limits keep: scripts in a folder for each dialect. They may be in one database with
// those of slots.
func schema() sqldb.Schema {
	return sqldb.Schema{Files: migrationFiles, History: "HEADGATE_SCHEMA_HISTORY",
		Packages: []string{"HEADGATE_STATE_API"}, Functions: []string{"HEADGATE_NOW_US"}}
}

// Migrate implements [backends.Migrator]: it runs the scripts that the history in the database,
// HEADGATE_SCHEMA_HISTORY, lacks. Only one process does at a time; others wait, and find the work
// done.
func (b *Backend) Migrate(ctx context.Context) (applied []string, err error) {
	// The sessions that decide wait for nobody for long, and migrations do.
	db, err := sqldb.Open(sqldb.Config{URL: b.conf.URL, PoolMax: 2, Log: b.conf.Log})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	applied, err = db.Migrate(ctx, schema())
	return applied, standing(err)
}

// Print returns all scripts for the database of a scheme, such as "postgres" or "mariadb", as one
// that its own client program can run. They note themselves in HEADGATE_SCHEMA_HISTORY, so that
// Migrate finds nothing to do.
func Print(scheme string) (string, error) { return schema().Print(scheme) }
