package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Statements that are kept answer as others do: while they are under way already, after errors,
// and after the schema has changed.
func TestKeptStatements(t *testing.T) {
	db, err := Open(Config{URL: "sqlite:" + t.TempDir() + "/kept.db"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	change := func(text string, args ...any) error {
		_, err := db.Change(ctx, db.Write, "change", Query{Text: text, Args: args, Kept: true})
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(change("CREATE TABLE T (N INTEGER PRIMARY KEY, V TEXT)"))
	for n := range 5 {
		must(change("INSERT INTO T (N, V) VALUES (?, ?)", n, fmt.Sprint("v", n)))
	}
	if err := change("INSERT INTO T (N, V) VALUES (?, ?)", 3, "again"); err == nil {
		t.Error("a key twice")
	}
	must(change("INSERT INTO T (N, V) VALUES (?, ?)", 5, "v5"))

	value := Query{Text: "SELECT V FROM T WHERE N = ?", Kept: true}
	read := func(on Session, n int) (v string, ok bool) {
		t.Helper()
		value.Args = []any{n}
		ok, err := db.Row(ctx, on, "read", value, &v)
		must(err)
		return v, ok
	}
	must(db.Transact(ctx, "nested", func(tx *sql.Tx) error {
		all := Query{Text: "SELECT N FROM T WHERE N < ? ORDER BY N", Args: []any{4}, Kept: true}
		outer := 0
		return db.Rows(ctx, tx, "outer", all, func(rows *sql.Rows) error {
			inner := 0
			must(db.Rows(ctx, tx, "inner", all, func(*sql.Rows) error { inner++; return nil }))
			var n int
			must(rows.Scan(&n))
			if v, ok := read(tx, n); v != fmt.Sprint("v", outer) || !ok || n != outer || inner != 4 {
				t.Errorf("row %d: %d is %q, %v; %d rows inside", outer, n, v, ok, inner)
			}
			outer++
			return nil
		})
	}))
	if _, ok := read(db.Read, 99); ok {
		t.Error("a row that is not there")
	}
	must(change("ALTER TABLE T ADD COLUMN W INTEGER"))
	must(change("DROP TABLE T"))
	must(change("CREATE TABLE T (V TEXT, N INTEGER PRIMARY KEY)"))
	must(change("INSERT INTO T (N, V) VALUES (?, ?)", 1, "anew"))
	if v, ok := read(db.Read, 1); v != "anew" || !ok {
		t.Errorf("in a new table of the name: %q, %v", v, ok)
	}
	gone, end := context.WithCancel(ctx)
	end()
	if _, err := db.Row(gone, db.Write, "read", value, new(string)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// A connection keeps so many texts, and compiles others each time.
func TestKeptStatementsAreBounded(t *testing.T) {
	db, err := Open(Config{URL: "sqlite::memory:"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Write.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for n := range 2 * sqliteKept {
		var got int
		q := Query{Text: fmt.Sprint("SELECT ", n), Kept: true}
		if ok, err := db.Row(t.Context(), conn, "read", q, &got); !ok || err != nil || got != n {
			t.Fatalf("statement %d: %d, %v, %v", n, got, ok, err)
		}
	}
	if err := conn.Raw(func(c any) error {
		if kept := len(c.(*sqliteConn).kept); kept != sqliteKept {
			return fmt.Errorf("%d statements are kept, want %d", kept, sqliteKept)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
