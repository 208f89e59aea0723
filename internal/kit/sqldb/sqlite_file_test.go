package sqldb

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"
)

// A file that was removed, or replaced as by a backup, is neither read nor written by those who have it open: they
// would not see what others write, nor others what they do. When it is back they go on.
func TestFileOfSQLiteThatIsGone(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := t.TempDir() + "/one.db"
	open := func() *DB {
		t.Helper()
		db, err := Open(Config{URL: "sqlite:" + path})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	change := func(db *DB, text string) error {
		_, err := db.Change(ctx, db.Write, "change", Query{Text: text})
		return err
	}
	old := open()
	must(change(old, "CREATE TABLE T (N INTEGER)"))
	uses := map[string]func() error{
		"write": func() error { return change(old, "INSERT INTO T (N) VALUES (1)") },
		"read": func() error {
			_, err := old.Row(ctx, old.Read, "read", Query{Text: "SELECT COUNT(*) FROM T", Kept: true}, new(int))
			return err
		},
		"transaction": func() error { return old.Transact(ctx, "transact", func(*sql.Tx) error { return nil }) },
	}
	refused := func(when string) {
		t.Helper()
		for name, use := range uses {
			if err := use(); err == nil || !strings.Contains(err.Error(), path) || KindOf(err) != Failed {
				t.Errorf("%s, %s: %v", when, name, err)
			}
		}
	}
	for _, use := range uses {
		must(use())
	}
	files := []string{"", "-wal", "-shm"}
	for _, name := range files {
		must(os.Rename(path+name, path+".away"+name))
	}
	refused("removed")
	other := open()
	must(change(other, "CREATE TABLE T (N INTEGER)"))
	refused("replaced")
	must(change(other, "INSERT INTO T (N) VALUES (1)"))
	for _, name := range files { // of the other file: its log must stay as the connections to the first one end
		must(os.Rename(path+name, path+".other"+name))
		must(os.Rename(path+".away"+name, path+name))
	}
	for name, use := range uses {
		if err := use(); err != nil {
			t.Errorf("the file is back, %s: %v", name, err)
		}
	}
	for _, name := range files {
		must(os.Rename(path+name, path+".away"+name))
		must(os.Rename(path+".other"+name, path+name))
	}
	must(old.Close())
	if _, err := os.Stat(path + "-wal"); err != nil {
		t.Errorf("the log of the other file is gone: %v", err)
	}
	must(other.Close())
}
