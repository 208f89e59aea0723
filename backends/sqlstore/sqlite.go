package sqlstore

import (
	"fmt"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// sqlite is SQLite, whose transactions have the whole file to themselves.
func sqlite() *dialect {
	d := &dialect{
		Dialect: sqldb.SQLite, maxLeases: 512, relaxes: true,
		lock: func(keys [][]byte, _ bool) []sqldb.Query {
			return []sqldb.Query{among("SELECT K, STATE FROM HEADGATE_STATE", keys)}
		},
		put: func(rows []row) sqldb.Query {
			return sqldb.Query{Text: "INSERT INTO HEADGATE_STATE (" + columns + ") VALUES " +
				sqldb.Repeated("(?,?,?,?,?,?)", len(rows)) +
				" ON CONFLICT (K) DO UPDATE SET STATE = excluded.STATE, AT_US = excluded.AT_US, N = excluded.N, M = excluded.M, " +
				"ENDS_US = excluded.ENDS_US",
				Args: values(rows)}
		},
		drop: func(keys [][]byte) []sqldb.Query {
			return []sqldb.Query{among("DELETE FROM HEADGATE_STATE", keys), among("DELETE FROM HEADGATE_LOG", keys)}
		},
		expired: func(keys [][]byte, before int64) sqldb.Query {
			q := among("SELECT K FROM HEADGATE_STATE", keys)
			q.Text += fmt.Sprintf(" AND ENDS_US < %d", before)
			return q
		},
	}
	d.markedParts()
	return d.texts()
}
