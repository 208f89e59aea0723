package sqlstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// A dialect is what differs between databases, as texts. Elsewhere statements have ? for each
// placeholder.
type dialect struct {
	name    string // of the sqldb.Dialect
	clock   string // the time in microseconds since 1970
	number  string // before the number of a placeholder; empty: they are ?
	chunk   int    // how many policies one statement writes: SQLite takes 32,766 values
	first   string // what a SELECT ends with that returns at most # rows
	decimal string // how an amount is read as text; # is its column
	// put is a statement that writes n rows, which take the place of those with the same key: the
	// first column. Its placeholders are the values of each row.
	put  func(table string, columns []string, n int) string
	lock string // what follows a SELECT that locks its row
}

var dialects = []*dialect{
	{
		name: sqldb.SQLite.Name, clock: sqldb.SQLite.Now, decimal: "printf('%.6f', #)", first: " LIMIT #", chunk: 500,
		put: inserting(" ON CONFLICT (#) DO UPDATE SET ", "excluded.#"),
	},
	{
		name: sqldb.Postgres.Name, clock: "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		number: "$", decimal: "#::text", first: " LIMIT #", chunk: 500,
		put: inserting(" ON CONFLICT (#) DO UPDATE SET ", "excluded.#"), lock: " FOR UPDATE",
	},
	{
		name: sqldb.MySQL.Name, clock: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
		decimal: "CAST(# AS CHAR)", first: " LIMIT #", chunk: 500,
		put: inserting(" ON DUPLICATE KEY UPDATE ", "VALUES(#)"), lock: " FOR UPDATE",
	},
	{
		// A number below one is written without its zero.
		name: sqldb.Oracle.Name, clock: "HEADGATE_POLICY_NOW_US()", number: ":", decimal: "'0' || CAST(# AS VARCHAR2(40))",
		first: " FETCH FIRST # ROWS ONLY", chunk: 50, put: updating, lock: " FOR UPDATE",
	},
}

// dialectOf returns what this package needs of a database. There is one for each.
func dialectOf(d *sqldb.Dialect) *dialect {
	for _, own := range dialects {
		if own.name == d.Name {
			return own
		}
	}
	return nil
}

// query makes a query of a text with ? for each of args.
func (d *dialect) query(text string, args ...any) sqldb.Query {
	if d.number != "" {
		var b strings.Builder
		for n := 1; ; n++ {
			before, after, ok := strings.Cut(text, "?")
			b.WriteString(before)
			if !ok {
				break
			}
			b.WriteString(d.number + strconv.Itoa(n))
			text = after
		}
		text = b.String()
	}
	return sqldb.Query{Text: text, Args: args}
}

// amount reads the amount of a column as text.
func (d *dialect) amount(column string) string { return strings.ReplaceAll(d.decimal, "#", column) }

// inserting is dialect.put where one INSERT takes the place of rows that are there: replace is what
// follows it, up to the columns, with # for the key, and column how a row's new value of a column is
// called; # is the column.
func inserting(replace, column string) func(table string, columns []string, n int) string {
	return func(table string, columns []string, n int) string {
		set := make([]string, len(columns)-1)
		for i, c := range columns[1:] {
			set[i] = c + " = " + strings.ReplaceAll(column, "#", c)
		}
		row := "(" + repeated("?", len(columns)) + ")"
		return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES " + repeated(row, n) +
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

// repeated is text n times, with commas between.
func repeated(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
