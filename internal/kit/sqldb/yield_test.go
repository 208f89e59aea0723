package sqldb_test

import (
	"database/sql"
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestOnlyServersAreWaitedFor: who waits for a server yields until the first row is here, and not while rows are read;
// who waits for SQLite computes, and does not yield.
func TestOnlyServersAreWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		url    func() string
		yields bool
	}{
		"sqlite":   {func() string { return "sqlite::memory:" }, false},
		"postgres": {func() string { return testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("yield") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := sqldb.Open(sqldb.Config{URL: c.url()})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			times, away := 0, false
			ctx := background.WithYield(t.Context(), func() func() {
				times, away = times+1, true
				return func() { away = false }
			})
			many := sqldb.Query{Text: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) " +
				"SELECT i FROM n"}
			var one int
			for kind, run := range map[string]func() error{
				"rows": func() error {
					return db.Rows(ctx, db.Read, what, many, func(*sql.Rows) error {
						if away {
							t.Fatal("a row is read while others compute")
						}
						return nil
					})
				},
				"one row": func() error { _, err := db.Row(ctx, db.Read, what, sqldb.Query{Text: "SELECT 1"}, &one); return err },
				"a change": func() error {
					_, err := db.Change(ctx, db.Write, what, sqldb.Query{Text: "CREATE TABLE t (i INTEGER)"})
					return err
				},
				"a transaction": func() error { return db.Transact(ctx, what, func(*sql.Tx) error { return nil }) },
			} {
				times = 0
				if err := run(); err != nil {
					t.Error(err)
				}
				if (times > 0) != c.yields || away {
					t.Errorf("%s: it has yielded %d times", kind, times)
				}
			}
		})
	}
}

const what = "a test"
