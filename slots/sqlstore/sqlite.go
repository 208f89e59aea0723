package sqlstore

import (
	"strconv"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

func sqliteDialect() *dialect {
	return &dialect{
		Dialect:    sqldb.SQLite,
		find:       findIn(sqldb.SQLite),
		claim:      claimRows(sqldb.SQLite, keptRows, "VALUES (", "), (", ")"),
		statements: sqliteStatements(),
	}
}

func sqliteStatements() statements {
	w := words{
		Dialect: sqldb.SQLite,
		place:   func(n int) string { return "?" + strconv.Itoa(n) },
		texts: map[string]string{
			"plus":   "$1 + $2 * 1000",
			"nth":    "($1 - $2) / ($3 * 1000)",
			"insert": "INSERT OR IGNORE INTO $1",
			"fill":   "INSERT OR IGNORE INTO $1",
			"renew":  renewByConflict,
		},
	}
	return w.statements()
}
