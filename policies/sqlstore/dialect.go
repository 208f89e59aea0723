package sqlstore

import (
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/sqldb"
)

// A dialect is what differs between databases, as texts. Elsewhere statements have ? for each
// placeholder.
type dialect struct {
	name     string // of the sqldb.Dialect
	clock    string // the time in microseconds since 1970
	numbered bool   // placeholders are $1, $2, …
	decimal  string // how an amount is read as text; # is its column
	replace  string // what follows an INSERT of rows whose keys may be there, up to the columns
	column   string // how such a row's new value of a column is called; # is the column
	lock     string // what follows a SELECT that locks its row
}

var dialects = []*dialect{
	{
		name: sqldb.SQLite.Name, clock: sqldb.SQLite.Now, decimal: "printf('%.6f', #)",
		replace: " ON CONFLICT (POLICY_KEY) DO UPDATE SET ", column: "excluded.#",
	},
	{
		name: sqldb.Postgres.Name, clock: "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		numbered: true, decimal: "#::text",
		replace: " ON CONFLICT (POLICY_KEY) DO UPDATE SET ", column: "excluded.#", lock: " FOR UPDATE",
	},
	{
		name: sqldb.MySQL.Name, clock: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))", decimal: "CAST(# AS CHAR)",
		replace: " ON DUPLICATE KEY UPDATE ", column: "VALUES(#)", lock: " FOR UPDATE",
	},
}

// dialectOf returns what this package needs of a database; nil if it has no such.
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
	if d.numbered {
		var b strings.Builder
		for n := 1; ; n++ {
			before, after, ok := strings.Cut(text, "?")
			b.WriteString(before)
			if !ok {
				break
			}
			b.WriteString("$" + strconv.Itoa(n))
			text = after
		}
		text = b.String()
	}
	return sqldb.Query{Text: text, Args: args}
}

// amount reads the amount of a column as text.
func (d *dialect) amount(column string) string { return strings.ReplaceAll(d.decimal, "#", column) }

// insert is an INSERT of n rows that takes the place of rows with the same keys. The first column
// is POLICY_KEY.
func (d *dialect) insert(table string, columns []string, n int) string {
	row := "(" + repeated("?", len(columns)) + ")"
	set := make([]string, len(columns)-1)
	for i, c := range columns[1:] {
		set[i] = c + " = " + strings.ReplaceAll(d.column, "#", c)
	}
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES " + repeated(row, n) + d.replace + strings.Join(set, ", ")
}

// repeated is text n times, with commas between.
func repeated(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
