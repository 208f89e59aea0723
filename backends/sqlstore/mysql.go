package sqlstore

import "github.com/headgate-rls/headgate/internal/kit/sqldb"

// mysql is MySQL and MariaDB.
//
// A statement that inserts rows or else locks those that are there takes the lock of each at once,
// in the order of its values. A SELECT … FOR UPDATE would leave missing rows unlocked: two
// transactions would insert them, and the one that finds the other's row holds a lock that others
// can have, too, which makes deadlocks. So does INSERT IGNORE.
func mysql() *dialect {
	d := &dialect{
		Dialect: sqldb.MySQL, maxLeases: 256,
		lock: mysqlLock,
		put: func(rows []row) sqldb.Query {
			return sqldb.Query{Text: "INSERT INTO HEADGATE_STATE (" + columns + ") VALUES " +
				sqldb.Repeated("(?,?,?,?,?,?)", len(rows)) +
				" ON DUPLICATE KEY UPDATE STATE = VALUES(STATE), AT_US = VALUES(AT_US), N = VALUES(N), M = VALUES(M), " +
				"ENDS_US = VALUES(ENDS_US)",
				Args: values(rows)}
		},
		// One by one, as a list may be looked for in the whole of a small table, and wait there for
		// the locks of others.
		drop: func(keys [][]byte) []sqldb.Query {
			var all []sqldb.Query
			for _, k := range keys {
				all = append(all, sqldb.Query{Text: "DELETE FROM HEADGATE_STATE WHERE K = ?", Args: []any{k}},
					sqldb.Query{Text: "DELETE FROM HEADGATE_LOG WHERE K = ?", Args: []any{k}})
			}
			return all
		},
	}
	d.listing()
	d.markedParts()
	return d.texts()
}

// mysqlLock returns the rows at once where the server can, and else reads them afterwards: nobody
// changes what is locked.
func mysqlLock(keys [][]byte, returning bool) []sqldb.Query {
	claim := sqldb.Query{Text: "INSERT INTO HEADGATE_STATE (" + columns + ") VALUES " +
		sqldb.Repeated("(?,'',0,0,0,0)", len(keys)) +
		" ON DUPLICATE KEY UPDATE N = N"}
	_, claim.Args = sqldb.Listed(keys)
	if returning {
		claim.Text += " RETURNING K, STATE"
		return []sqldb.Query{claim}
	}
	return []sqldb.Query{claim, among("SELECT K, STATE FROM HEADGATE_STATE", keys)}
}
