package sqldb

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// schemaOf is a schema with scripts for SQLite.
func schemaOf(history string, scripts ...string) Schema {
	files := fstest.MapFS{}
	for i := 0; i < len(scripts); i += 2 {
		files["migrations/sqlite/"+scripts[i]] = &fstest.MapFile{Data: []byte(scripts[i+1])}
	}
	return Schema{Files: files, History: history}
}

// Owners in one database know nothing of each other's scripts.
func TestMigrateOfTwoOwners(t *testing.T) {
	db := mustOpen(t, Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "two.db")})
	a := schemaOf("A_HISTORY", "V1__a.sql", "CREATE TABLE A (N INTEGER)", "V10__later.sql", "INSERT INTO A VALUES (10)",
		"V2__more.sql", "INSERT INTO A VALUES (1)\n/\n-- a comment alone\n/\nINSERT INTO A VALUES (2)", "R__last.sql",
		"INSERT INTO A VALUES (99)")
	b := schemaOf("B_HISTORY", "V1__a.sql", "CREATE TABLE B (N INTEGER)")
	for _, c := range []struct {
		schema Schema
		want   []string
	}{{a, []string{"V1__a.sql", "V2__more.sql", "V10__later.sql", "R__last.sql"}}, {b, []string{"V1__a.sql"}},
		{a, nil}, {b, nil}} {
		applied, err := db.Migrate(soon(t), c.schema)
		if err != nil || !slices.Equal(applied, c.want) {
			t.Errorf("%s: applied %q, %v; want %q", c.schema.History, applied, err, c.want)
		}
	}
	if got := one(t, db.Read, "SELECT group_concat(N) FROM A"); got != "1,2,10,99" {
		t.Errorf("rows %s: want them in the order of the scripts", got)
	}
}

// What Flyway has applied is the first version of the owner that says so, and of no other.
func TestMigrateTakesOverFlyway(t *testing.T) {
	db := mustOpen(t, Config{URL: "sqlite::memory:"})
	for _, text := range []string{"CREATE TABLE A (N INTEGER)",
		"CREATE TABLE flyway_schema_history (version TEXT, success INTEGER)",
		"INSERT INTO flyway_schema_history VALUES ('1', 1)"} {
		_, err := db.Change(soon(t), db.Write, "be Flyway", Query{Text: text})
		check(t, err)
	}
	a := schemaOf("A_HISTORY", "V1__a.sql", "CREATE TABLE A (N INTEGER)")
	_, err := db.Migrate(soon(t), a)
	wantError(t, err, "table A already exists")
	a.Flyway = true
	_, err = db.Migrate(soon(t), a)
	check(t, err)
	_, err = db.Migrate(soon(t), schemaOf("B_HISTORY", "V1__b.sql", "CREATE TABLE B (N INTEGER)"))
	check(t, err)
	one(t, db.Read, "SELECT COUNT(*) FROM B")
}

// A script that fails leaves nothing behind, and the error says where it failed.
func TestMigrateFails(t *testing.T) {
	db := mustOpen(t, Config{URL: "sqlite::memory:"})
	bad := schemaOf("H", "V1__a.sql", "CREATE TABLE A (N INTEGER)\n/\nINSERT INTO NONE VALUES (1)")
	_, err := db.Migrate(soon(t), bad)
	wantError(t, err, "migrate the schema: V1__a.sql: statement 2 of 2", "NONE")
	if n := one(t, db.Read, "SELECT COUNT(*) FROM sqlite_master"); n != "0" {
		t.Errorf("%s tables", n)
	}
}

// Missing names what was never applied, and an edited script is an error that says what to do.
func TestMigrateMissingAndEdited(t *testing.T) {
	db := mustOpen(t, Config{URL: "sqlite::memory:"})
	old := schemaOf("H", "V1__a.sql", "CREATE TABLE A (N INTEGER)", "R__r.sql", "DELETE FROM A")
	_, err := db.Migrate(soon(t), old)
	check(t, err)
	next := schemaOf("H", "V1__a.sql", "CREATE TABLE A (N INTEGER)", "V2__b.sql", "CREATE TABLE B (N INTEGER)", "R__r.sql",
		"DELETE FROM B")
	missing, err := db.Missing(soon(t), next)
	if err != nil || !slices.Equal(missing, []string{"V2__b.sql"}) {
		t.Errorf("missing %q, %v; want V2 alone", missing, err)
	}
	applied, err := db.Migrate(soon(t), next)
	if err != nil || !slices.Equal(applied, []string{"V2__b.sql", "R__r.sql"}) {
		t.Errorf("applied %q, %v; want V2, and the repeatable one again", applied, err)
	}
	_, err = db.Migrate(soon(t), old)
	wantError(t, err, "version 2", "use a program at least as new")
	_, err = db.Migrate(soon(t), schemaOf("H", "V1__a.sql", "CREATE TABLE A (EDITED INTEGER)", "V2__b.sql", "x"))
	wantError(t, err, "H says that V1__a.sql was applied with checksum")
}

// Printed, a schema brings its own history along.
func TestPrintNamesTheHistory(t *testing.T) {
	text, err := schemaOf("MY_HISTORY", "V1__a.sql", "CREATE TABLE A (N INTEGER)").Print("sqlite")
	if err != nil || strings.Contains(text, "${") || !strings.Contains(text, "INSERT INTO MY_HISTORY") ||
		!strings.Contains(text, "CREATE TABLE A") {
		t.Errorf("%s, %v", text, err)
	}
	_, err = Schema{}.Print("db2")
	wantError(t, err, `unknown database "db2"`, "postgres")
}
