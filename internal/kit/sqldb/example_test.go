package sqldb_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing/fstest"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// notes is a package with a database: its scripts, by dialect (embedded files, usually), and the
// name of its history.
var notes = sqldb.Schema{
	Files: fstest.MapFS{
		"migrations/sqlite/V1__notes.sql": {
			Data: []byte("CREATE TABLE NOTE (NOTE_ID TEXT NOT NULL PRIMARY KEY, CREAT_TS INTEGER NOT NULL)\n/\n")},
	},
	History: "NOTE_HISTORY",
}

// The life of an owner: open, migrate, write, read.
func Example() {
	ctx := context.Background()
	db, err := sqldb.Open(sqldb.Config{URL: "sqlite::memory:"})
	if err != nil {
		fmt.Println(err) // the Config is wrong
		return
	}
	defer db.Close()
	applied, err := db.Migrate(ctx, notes)
	fmt.Println(applied, err)

	add := func(id string) error {
		return db.Transact(ctx, "add a note", func(tx *sql.Tx) error {
			_, err := db.Change(ctx, tx, "add a note", sqldb.Query{
				Text: "INSERT INTO NOTE (NOTE_ID, CREAT_TS) VALUES (?1, ?2)",
				Args: []any{id, db.Dialect.Instant(1_500_000)}, Rows: 1})
			return err
		})
	}
	fmt.Println(add("a"))
	fmt.Println(sqldb.KindOf(add("a")))

	var us int64
	query := sqldb.Query{Text: "SELECT CREAT_TS FROM NOTE WHERE NOTE_ID = ?1", Args: []any{"a"}}
	ok, err := db.Row(ctx, db.Read, "read a note", query, db.Dialect.Into(&us))
	fmt.Println(us, ok, err)
	// Output:
	// [V1__notes.sql] <nil>
	// <nil>
	// duplicate
	// 1500000 true <nil>
}
