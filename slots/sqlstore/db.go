package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// DB is a Store in a database. It may be used from any goroutine.
type DB struct {
	dialect *dialect
	sql     *sqldb.DB
	known   knownWindows
}

var _ slots.Store = (*DB)(nil)

// Address returns what the URL that the store was opened with says.
func (db *DB) Address() string { return db.sql.Address }

// InProcess reports whether the database computes in this process, as SQLite does.
func (db *DB) InProcess() bool { return db.sql.InProcess() }

// Pool implements slots.Store.
func (db *DB) Pool() slots.PoolStats { return slots.PoolStats(db.sql.Pool()) }

// Close implements slots.Store. It closes the connections; a caller that uses one at the moment gets an
// error.
func (db *DB) Close() error { return db.sql.Close() }

// into reads an instant into us.
func (db *DB) into(us *int64) sql.Scanner { return db.dialect.Into(us) }

// at binds an instant of whole milliseconds.
func (db *DB) at(ms int64) any { return db.dialect.Instant(ms * 1000) }

// millis rounds an instant down to milliseconds.
func millis(us int64) int64 { return time.UnixMicro(us).UnixMilli() }

// Config says which database to use, and how.
type Config = sqldb.Config

// Open returns the Store of a database. It does not connect: a database that is
// down is noticed by Ping and by the next call. An error means that
// the Config is wrong. Close must be called.
func Open(c Config) (*DB, error) {
	c.Errors = storeError
	db, err := sqldb.Open(c)
	if err != nil {
		return nil, err
	}
	return &DB{dialect: dialects[db.Dialect](), sql: db}, nil
}

// dialects returns the dialect of slots for each database.
var dialects = map[*sqldb.Dialect]func() *dialect{
	sqldb.SQLite: sqliteDialect, sqldb.Postgres: postgresDialect, sqldb.MySQL: mysqlDialect, sqldb.Oracle: oracleDialect,
}

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
	return db.sql.Migrate(ctx, schema())
}

// Print returns all scripts for the database of a scheme, such as "postgres" or
// "mariadb", as one that its own client program can run on an empty schema. They
// note themselves in RL_SCHEMA_HISTORY, so that Migrate finds nothing to do.
func Print(scheme string) (string, error) { return schema().Print(scheme) }

const pingOp = "ping the database"

// Ping implements slots.Store. It also sees to it that there are PoolMin
// connections, in the background.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.Look(ctx); err != nil {
		return err
	}
	// A database that takes no writes, such as a replica, answers questions as any other. No row has this name.
	_, err := db.sql.Change(ctx, db.sql.Write, pingOp, db.dialect.statements.lead.with("ping", 0, "ping", "ping"))
	return err
}

// Look reports whether the database answers and has the schema. It may be one that takes no writes.
func (db *DB) Look(ctx context.Context) error {
	const op = pingOp
	_, err := db.Generation(ctx)
	if err != nil {
		return noSchema(op, err)
	}
	missing, err := db.sql.Missing(ctx, schema())
	if err != nil {
		return noSchema(op, err)
	}
	if len(missing) > 0 {
		return &slots.StoreError{Kind: slots.Failed, Op: op,
			Err: fmt.Errorf("the schema lacks %s: "+howToMigrate, missing[0])}
	}
	db.sql.WarmUp()
	return nil
}

const howToMigrate = "run headgate migrate, or have an administrator run what headgate migrate --print prints"

// noSchema says what to do if the tables that each database has are not there.
func noSchema(op string, err error) error {
	if !sqldb.NoSchema(err) {
		return err
	}
	return &slots.StoreError{Kind: slots.Failed, Op: op,
		Err: fmt.Errorf("the tables of slots are missing: "+howToMigrate+" (%w)", err)}
}
