package sqlstore

import (
	"fmt"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// A dialect is what differs between databases, as texts. Elsewhere statements have ? for each
// placeholder.
type dialect struct {
	clock string // the time in microseconds since 1970
	// readOnly is 1 if the database takes no writes, else 0, or always 0 where only the error of a write says so.
	readOnly string
	chunk    int    // how many policies one statement writes: SQLite takes 32,766 values
	first    string // what a SELECT ends with that returns at most # rows
	decimal  string // how an amount is read as text; # is its column
	whole    string // how a capacity is read; # is its column
	// put is a statement that writes n rows, which take the place of those with the same key: the
	// first column. Its placeholders are the values of each row.
	put  func(table string, columns []string, n int) string
	lock string // what follows a SELECT that locks its row
}

var dialects = map[*sqldb.Dialect]*dialect{
	sqldb.SQLite: {
		clock: sqldb.SQLite.Clock, readOnly: "0", decimal: "printf('%.6f', #)", first: " LIMIT #", chunk: 500,
		// SQLite keeps any value in any column. No policy has a capacity below zero.
		whole: "CASE typeof(#) WHEN 'integer' THEN # ELSE -1 END",
		put:   inserting(" ON CONFLICT (#) DO UPDATE SET ", "excluded.#"),
	},
	sqldb.Postgres: {
		clock:    sqldb.Postgres.Clock,
		readOnly: "CASE current_setting('transaction_read_only') WHEN 'on' THEN 1 ELSE 0 END",
		decimal:  "#::text", whole: "#", first: " LIMIT #", chunk: 500,
		put: inserting(" ON CONFLICT (#) DO UPDATE SET ", "excluded.#"), lock: " FOR UPDATE",
	},
	sqldb.MySQL: {
		clock: sqldb.MySQL.Clock, readOnly: "0", decimal: "CAST(# AS CHAR)", whole: "#", first: " LIMIT #", chunk: 500,
		put: inserting(" ON DUPLICATE KEY UPDATE ", "VALUES(#)"), lock: " FOR UPDATE",
	},
	sqldb.Oracle: {
		// A number below one is written without its zero.
		clock: "HEADGATE_POLICY_NOW_US()", readOnly: "0", decimal: "'0' || CAST(# AS VARCHAR2(40))", whole: "#",
		first: " FETCH FIRST # ROWS ONLY", chunk: 50, put: updating, lock: " FOR UPDATE",
	},
}

// amount reads the amount of a column as text.
func (d *dialect) amount(column string) string { return strings.ReplaceAll(d.decimal, "#", column) }

// capacity is the column CAPACITY as a whole number.
func (d *dialect) capacity() string { return strings.ReplaceAll(d.whole, "#", "CAPACITY") }

// inserting is dialect.put where one INSERT takes the place of rows that are there: replace is what
// follows it, up to the columns, with # for the key, and column how a row's new value of a column is
// called; # is the column.
func inserting(replace, column string) func(table string, columns []string, n int) string {
	return func(table string, columns []string, n int) string {
		set := make([]string, len(columns)-1)
		for i, c := range columns[1:] {
			set[i] = c + " = " + strings.ReplaceAll(column, "#", c)
		}
		row := "(" + sqldb.Repeated("?", len(columns)) + ")"
		return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES " + sqldb.Repeated(row, n) +
			strings.ReplaceAll(replace, "#", columns[0]) + strings.Join(set, ", ")
	}
}

// updating is dialect.put by a block that writes row by row. The row of the state is locked: nobody
// else writes.
func updating(table string, columns []string, n int) string {
	var b strings.Builder
	b.WriteString("DECLARE")
	for i, c := range columns {
		fmt.Fprintf(&b, " v%d %s.%s%%TYPE;", i, table, c)
	}
	b.WriteString(" BEGIN")
	names, set := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		names[i] = fmt.Sprintf("v%d", i)
		set[i] = c + " = " + names[i]
	}
	for range n {
		for _, name := range names {
			b.WriteString(" " + name + " := ?;")
		}
		fmt.Fprintf(&b, " UPDATE %s SET %s WHERE %s; IF SQL%%ROWCOUNT = 0 THEN INSERT INTO %s (%s) VALUES (%s); END IF;",
			table, strings.Join(set[1:], ", "), set[0], table, strings.Join(columns, ", "), strings.Join(names, ", "))
	}
	return b.String() + " END;"
}
