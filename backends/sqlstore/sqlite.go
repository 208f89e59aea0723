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
			return []sqldb.Query{{Args: listed(keys),
				Text: "SELECT K, STATE FROM HEADGATE_STATE WHERE K IN (" + sqldb.Repeated("?", len(keys)) + ")"}}
		},
		put: func(rows []row) sqldb.Query {
			return sqldb.Query{Text: "INSERT INTO HEADGATE_STATE (" + columns + ") VALUES " +
				sqldb.Repeated("(?,?,?,?,?,?)", len(rows)) +
				" ON CONFLICT (K) DO UPDATE SET STATE = excluded.STATE, AT_US = excluded.AT_US, N = excluded.N, M = excluded.M, " +
				"ENDS_US = excluded.ENDS_US",
				Args: values(rows)}
		},
		drop: func(keys [][]byte) []sqldb.Query {
			these := " WHERE K IN (" + sqldb.Repeated("?", len(keys)) + ")"
			return []sqldb.Query{{Text: "DELETE FROM HEADGATE_STATE" + these, Args: listed(keys)},
				{Text: "DELETE FROM HEADGATE_LOG" + these, Args: listed(keys)}}
		},
		expired: func(keys [][]byte, before int64) sqldb.Query {
			return sqldb.Query{Text: fmt.Sprintf("SELECT K FROM HEADGATE_STATE WHERE K IN (%s) AND ENDS_US < %d",
				sqldb.Repeated("?", len(keys)), before), Args: listed(keys)}
		},
	}
	d.markedParts()
	return d.texts()
}
