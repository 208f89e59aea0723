package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// eachWithTable runs a test on every kind of database that can be had, in which the table T has
// a key N and one row, 1.
func eachWithTable(t *testing.T, test func(t *testing.T, db *DB)) {
	t.Helper()
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "t.db") },
		"postgres": func(t *testing.T) string { return testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("tx") },
		"mariadb":  func(t *testing.T) string { return testenv.SharedDatabase(t, testenv.MariaDB).CreateDatabase("tx") },
	} {
		t.Run(name, func(t *testing.T) {
			db := mustOpen(t, Config{URL: url(t)})
			for _, text := range []string{"CREATE TABLE T (N INTEGER PRIMARY KEY)", "INSERT INTO T VALUES (1)"} {
				_, err := db.Change(soon(t), db.Write, "make T", Query{Text: text})
				check(t, err)
			}
			test(t, db)
		})
	}
}

// numbers is how many rows T has.
func numbers(t *testing.T, db *DB) string {
	t.Helper()
	return one(t, db.Read, "SELECT COUNT(*) FROM T")
}

var (
	insert2 = Query{Text: "INSERT INTO T VALUES (2)", Rows: 1}
	insert1 = Query{Text: "INSERT INTO T VALUES (1)", Rows: 1}
	count   = Query{Text: "SELECT COUNT(*) FROM T"}
)

// What runs first and what runs last is one transaction.
func TestTransactionCommits(t *testing.T) {
	eachWithTable(t, func(t *testing.T, db *DB) {
		tx, err := db.Begin(soon(t), "begin")
		check(t, err)
		var n int64
		var ok bool
		_, err = tx.Run(soon(t), "count", insert2, Query{Text: count.Text, To: []any{&n}, Found: &ok})
		if !ok || err != nil || n != 2 {
			t.Fatalf("%d rows inside, %v, %v", n, ok, err)
		}
		if got := numbers(t, db); got != "1" {
			t.Errorf("others see %s rows before the commit", got)
		}
		check(t, tx.Commit(soon(t), "commit", Query{Text: "INSERT INTO T VALUES (3)"}))
		tx.Rollback()
		if got := numbers(t, db); got != "3" {
			t.Errorf("%s rows after the commit", got)
		}
	})
}

// If the last statements fail nothing of the transaction stays, and the connection is given back.
func TestTransactionThatFailsLeavesNothing(t *testing.T) {
	eachWithTable(t, func(t *testing.T, db *DB) {
		tx, err := db.Begin(soon(t), "begin")
		check(t, err)
		check(t, tx.Change(soon(t), "insert", insert2))
		err = tx.Commit(soon(t), "insert again", Query{Text: "INSERT INTO T VALUES (4)"}, insert1)
		var e *Error
		if !errors.As(err, &e) || e.Kind != Duplicate || e.Index == "" {
			t.Errorf("a duplicate gave %+v", err)
		}
		if got := numbers(t, db); got != "1" {
			t.Errorf("%s rows stay", got)
		}
		if n := db.Write.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
		if err := tx.Change(soon(t), "after the end", insert2); err == nil {
			t.Error("a statement after the end")
		}
	})
}

// An error reports whether it came before the first rows, where statements are sent together, and
// rows before it are read.
func TestTransactionReturnsRowsBeforeAnError(t *testing.T) {
	eachWithTable(t, func(t *testing.T, db *DB) {
		first := int64(-1)
		count1 := Query{Text: count.Text, To: []any{&first}}
		for _, c := range []struct {
			before   []Query
			answered bool
			first    int64
		}{{[]Query{insert1, count1}, false, -1}, {[]Query{count1, insert1}, true, 1}} {
			tx, err := db.Begin(soon(t), "begin")
			check(t, err)
			var n int64
			answered, err := tx.Run(soon(t), "read", append(c.before, Query{Text: count.Text, To: []any{&n}})...)
			if want := c.answered || !tx.Pipelined(); err == nil || answered != want {
				t.Errorf("%v: answered %v, want %v (%v)", c.before, answered, want, err)
			}
			if first != c.first {
				t.Errorf("%v: the first row has %d, want %d", c.before, first, c.first)
			}
			tx.Rollback()
		}
	})
}

// Queries before the last fill their To, and one that returns no row leaves it as it was.
func TestTransactionReadsSeveralRows(t *testing.T) {
	eachWithTable(t, func(t *testing.T, db *DB) {
		for round := range 2 { // pipelined, then statement by statement
			tx, err := db.Begin(soon(t), "begin")
			check(t, err)
			if round == 1 {
				_, err := tx.Session(soon(t), "begin")
				check(t, err)
			}
			none, before, after, ok := int64(-1), int64(-1), int64(-1), false
			answered, err := tx.Run(soon(t), "read", Query{Text: "SELECT N FROM T WHERE N > 5", To: []any{&none}},
				Query{Text: count.Text, To: []any{&before}}, insert2, Query{Text: count.Text, To: []any{&after}, Found: &ok})
			if !ok || !answered || err != nil || none != -1 || before != 1 || after != 2 {
				t.Errorf("round %d: %v, %v, %v: %d, %d, %d; want -1, 1, 2", round, ok, answered, err, none, before, after)
			}
			tx.Rollback()
		}
	})
}

// A caller that gives up gets its own error.
func TestTransactionOfACallerThatHasGone(t *testing.T) {
	eachWithTable(t, func(t *testing.T, db *DB) {
		tx, err := db.Begin(soon(t), "begin")
		check(t, err)
		defer tx.Rollback()
		ctx, cancel := context.WithCancel(soon(t))
		cancel()
		if err := tx.Change(ctx, "insert", insert2); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// Reading brings the rows of every query, in the order of the queries.
func TestTransactionReads(t *testing.T) {
	eachWithTable(t, func(t *testing.T, db *DB) {
		tx, err := db.Begin(soon(t), "begin")
		check(t, err)
		defer tx.Rollback()
		var got []int64
		queries := []Query{insert2}
		for i, text := range []string{"SELECT N FROM T ORDER BY N", "SELECT N FROM T WHERE N > 5", count.Text} {
			queries = append(queries, Query{Text: text, Each: func(scan func(...any) error) error {
				var n int64
				err := scan(&n)
				got = append(got, int64(i), n)
				return err
			}})
		}
		_, err = tx.Run(soon(t), "read", queries...)
		check(t, err)
		if want := []int64{0, 1, 0, 2, 2, 2}; !slices.Equal(got, want) {
			t.Errorf("rows are %v, want %v", got, want)
		}
	})
}

// A commit that the database has refused is in no doubt; one whose answer is lost is.
func TestTransactionTellsWhetherTheCommitIsInDoubt(t *testing.T) {
	eachWithTable(t, func(t *testing.T, db *DB) {
		tx, err := db.Begin(soon(t), "begin")
		check(t, err)
		if err := tx.Commit(soon(t), "insert again", insert1); err == nil || tx.InDoubt() {
			t.Errorf("a duplicate: %v, in doubt: %v", err, tx.InDoubt())
		}
	})
	for _, engine := range []string{testenv.Postgres, testenv.MariaDB} {
		address, err := url.Parse(testenv.SharedDatabase(t, engine).CreateDatabase("tx"))
		check(t, err)
		proxy := testenv.StartProxy(t, address.Host)
		address.Host = proxy.Addr
		db := mustOpen(t, Config{URL: address.String()})
		tx, err := db.Begin(soon(t), "begin")
		check(t, err)
		check(t, tx.Change(soon(t), "nothing", Query{Text: "SELECT 1"}))
		proxy.Freeze()
		ctx, cancel := context.WithTimeout(soon(t), 50*time.Millisecond)
		defer cancel()
		if err := tx.Commit(ctx, "nothing"); err == nil || !tx.InDoubt() {
			t.Errorf("%s, no answer: %v, in doubt: %v", engine, err, tx.InDoubt())
		}
	}
}

// However a transaction begins, it has the settings of the Config, also behind a pooler, where sessions cannot be set
// up: it does not wait for a row for longer than LockWait.
func TestTransactionsHaveTheirSettingsBehindAPooler(t *testing.T) {
	pg := testenv.SharedDatabase(t, testenv.Postgres)
	address := pg.CreateDatabase("bounced")
	direct := mustOpen(t, Config{URL: address})
	for _, text := range []string{"CREATE TABLE T (N INTEGER PRIMARY KEY)", "INSERT INTO T VALUES (1)"} {
		_, err := direct.Change(soon(t), direct.Write, "make T", Query{Text: text})
		check(t, err)
	}
	db := mustOpen(t, Config{URL: testenv.StartPgBouncer(t, pg, testenv.PoolTransaction).URLOf(address),
		LockWait: 50 * time.Millisecond, IdleInTransaction: time.Minute, Relaxed: true})
	var lock, idle, commit string
	settings := Query{Text: "SELECT current_setting('lock_timeout'), current_setting('" + postgresIdle +
		"'), current_setting('synchronous_commit')", To: []any{&lock, &idle, &commit}}
	update := Query{Text: "UPDATE T SET N = 1", Rows: 1}
	for name, run := range map[string]func(*Tx, ...Query) error{
		"Run":    func(tx *Tx, q ...Query) error { _, err := tx.Run(soon(t), "run", q...); return err },
		"Whole":  func(tx *Tx, q ...Query) error { _, err := tx.Whole(soon(t), "run", q); return err },
		"Change": func(tx *Tx, q ...Query) error { return tx.Change(soon(t), "run", q...) },
		"Transact": func(tx *Tx, q ...Query) error {
			return db.Transact(soon(t), "run", func(on *sql.Tx) error {
				if _, err := db.Row(soon(t), on, "run", q[0], q[0].To...); err != nil || len(q) == 1 {
					return err
				}
				_, err := db.Change(soon(t), on, "run", q[1])
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			begin := func() *Tx {
				tx, err := db.Begin(soon(t), "begin")
				check(t, err)
				t.Cleanup(tx.Rollback)
				return tx
			}
			check(t, run(begin(), settings))
			if lock != "50ms" || idle != "1min" || commit != "off" {
				t.Errorf("lock_timeout is %s, %s is %s, synchronous_commit is %s", lock, postgresIdle, idle, commit)
			}
			holder, err := direct.Write.BeginTx(soon(t), nil)
			check(t, err)
			defer func() { _ = holder.Rollback() }()
			_, err = direct.Change(soon(t), holder, "hold", update)
			check(t, err)
			if err := run(begin(), settings, update); KindOf(err) != Held {
				t.Errorf("an update of a row that another holds: %v", err)
			}
		})
	}
}
