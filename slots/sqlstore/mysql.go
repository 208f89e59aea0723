package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

func mysqlDialect() *dialect {
	return &dialect{
		Dialect:    sqldb.MySQL,
		find:       findIn(sqldb.MySQL),
		claim:      claimRows(sqldb.MySQL, slots.MaxBatch, "VALUES (", "), (", ")"),
		place:      mysqlPlace(),
		placeGates: true,
		refused:    mysqlRefused,
		statements: mysqlStatements(),
		gateActive: true,

		purgeWindows: mysqlPurgeWindows,
		shut:         mysqlShut,
	}
}

// mysqlShut takes the gates. The server waits for a lock for a second or more, so the statement
// is ended from another session. Where there is only one, it does not wait.
func mysqlShut(ctx context.Context, db *sqldb.DB, tx *sql.Tx, gates []query, _ int) error {
	if db.Write.Stats().MaxOpenConnections == 1 {
		for _, gate := range gates {
			if _, err := tx.ExecContext(ctx, gate.Text+" NOWAIT", gate.Args...); err != nil {
				return err
			}
		}
		return nil
	}
	var session int64
	if err := tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&session); err != nil {
		return err
	}
	// At hand before anybody waits: to connect may take longer than a claim should wait.
	killer, err := db.Write.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = killer.Close() }() // back to the pool, if it is any good
	for _, gate := range gates {
		if err := mysqlShutOne(ctx, tx, gate, killer, session); err != nil {
			return err
		}
	}
	return nil
}

// mysqlShutLimit bounds the wait for a server that does not answer at all.
const mysqlShutLimit = 5 * time.Second

// mysqlShutOne takes one gate. It goes on for a moment after ctx has ended: a client that only
// hangs up leaves the server waiting for the lock, and claims would wait behind it for a second.
func mysqlShutOne(ctx context.Context, tx *sql.Tx, gate query, killer *sql.Conn, session int64) error {
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), mysqlShutLimit)
	defer cancel()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(gateWait)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C: // again, if the statement had not arrived before
				if _, err := killer.ExecContext(wait, "KILL QUERY "+strconv.FormatInt(session, 10)); err != nil {
					return // the server's own bound ends the wait
				}
			}
		}
	}()
	_, err := tx.ExecContext(wait, gate.Text, gate.Args...)
	close(done)
	<-ended
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == 1317 {
		return &sqldb.Error{Kind: sqldb.Held, Op: "hold the version of a config", Err: err}
	}
	return err
}

// mysqlPlace returns dialect.place. The count comes back as the session's last id. Unless the update
// has found its row, the insert fails, and with it the transaction: the id of a slot is not NULL.
// The update holds the version itself: a statement of its own costs the server a seventh of the claim.
func mysqlPlace() func(string, slots.Series, int64, int64, []slots.Slot, *sql.NullInt64) []query {
	words := mysqlWords()
	count := words.text("UPDATE RL_WNDW_CT SET SLOT_CT = LAST_INSERT_ID(SLOT_CT + #4)" +
		" WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2 AND WNDW_STRT_TS = @3 AND SLOT_CT <= #5 AND EPOCH_CT = {epoch}" +
		" AND (SELECT ACT_IN FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = :6 LOCK IN SHARE MODE) = 1")
	return func(configID string, s slots.Series, windowMs, max int64, claimed []slots.Slot, to *sql.NullInt64) []query {
		n := int64(len(claimed))
		insert := insertRows(sqldb.MySQL, s, windowMs, claimed, "VALUES (", "), (", ")")
		insert.Text = strings.Replace(insert.Text, "(?", "(IF(ROW_COUNT() = 1, ?, NULL)", 1)
		return []query{
			count.with(s.Scope, s.SizeMs, sqldb.MySQL.Instant(windowMs*1000), n, max-n, configID),
			insert,
			{Text: "SELECT LAST_INSERT_ID()", To: []any{to}},
		}
	}
}

// mysqlRefused reports whether mysqlPlace has found no row, or no room.
func mysqlRefused(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == 1048 // a column cannot be NULL
}

// mysqlWords are the words of statements.
func mysqlWords() *words {
	return &words{
		Dialect: sqldb.MySQL,
		place:   func(int) string { return "?" },
		ordered: true,
		texts: map[string]string{
			"dual":   " FROM DUAL",
			"lock":   " FOR UPDATE",
			"wait":   " FOR UPDATE",
			"plus":   "TIMESTAMPADD(MICROSECOND, $2 * 1000, $1)",
			"nth":    "TIMESTAMPDIFF(MICROSECOND, $2, $1) DIV ($3 * 1000)",
			"insert": "INSERT INTO $1",
			// Unlike IGNORE this takes no shared lock, on which those who insert the same row
			// would wait for each other crosswise.
			"skip": " ON DUPLICATE KEY UPDATE $1.CREAT_TS = $1.CREAT_TS",
			"fill": "INSERT IGNORE INTO $1",
			// Columns are set in this order: EPOCH_CT, which the conditions compare, is the last.
			"renew": " ON DUPLICATE KEY UPDATE SLOT_CT = IF(RL_WNDW_CT.EPOCH_CT <> VALUES(EPOCH_CT), VALUES(SLOT_CT), " +
				"RL_WNDW_CT.SLOT_CT)," +
				" CREAT_TS = IF(RL_WNDW_CT.EPOCH_CT <> VALUES(EPOCH_CT), VALUES(CREAT_TS), RL_WNDW_CT.CREAT_TS), " +
				"EPOCH_CT = VALUES(EPOCH_CT)",
			"active": "",
		},
	}
}

func mysqlStatements() statements {
	w := mysqlWords()
	s := w.statements()
	s.gate = text("SELECT ACT_IN FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = ? LOCK IN SHARE MODE")
	s.gateAll = text("SELECT ACT_IN FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = ? FOR UPDATE")
	s.purgeFrontiers = text("DELETE F FROM RL_WNDW_FRONTIER_TRK F JOIN (SELECT WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, " +
		"WNDW_END_TS" +
		" FROM RL_WNDW_FRONTIER_TRK WHERE TIMESTAMPADD(MICROSECOND, WNDW_SIZE_MS * 1000, REQ_TS) <= ? AND CREAT_TS < " +
		"? LIMIT ?) D" +
		" ON F.WNDW_SCOPE_NM = D.WNDW_SCOPE_NM AND F.WNDW_SIZE_MS = D.WNDW_SIZE_MS AND F.REQ_TS = D.REQ_TS AND " +
		"F.WNDW_END_TS = D.WNDW_END_TS")
	s.purgeWindows = statement{} // see mysqlPurgeWindows
	s.purgeSlots = w.text(
		"DELETE FROM RL_EVENT_SLOT_DTL WHERE CREAT_TS < @1 AND COMPUTED_SCHED_TS < @1 ORDER BY CREAT_TS LIMIT #2")
	return s
}

// mysqlPurgeWindows looks for the windows first, which locks nothing, and deletes
// each by its key: a DELETE that looks for rows itself, even by a list of keys,
// may lock all that it reads, and would wait for windows that are being claimed.
func mysqlPurgeWindows(ctx context.Context, db *sqldb.DB, ended, made any, limit int) (purged int64, err error) {
	const op = "purge windows"
	const old = "SELECT WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS FROM RL_WNDW_CT" +
		" WHERE TIMESTAMPADD(MICROSECOND, WNDW_SIZE_MS * 1000, WNDW_STRT_TS) <= ? AND CREAT_TS < ? LIMIT ?"
	const drop = "DELETE FROM RL_WNDW_CT WHERE WNDW_SCOPE_NM = ? AND WNDW_SIZE_MS = ? AND WNDW_STRT_TS = ?"
	var keys [][]any
	err = db.Rows(ctx, db.Read, op, query{Text: old, Args: []any{ended, made, limit}}, func(rows *sql.Rows) error {
		var scope, start string
		var size int64
		err := rows.Scan(&scope, &size, &start)
		keys = append(keys, []any{scope, size, start})
		return err
	})
	if err != nil {
		return 0, err
	}
	dropAll := func(some [][]any) (n int64, err error) {
		err = db.Transact(ctx, op, func(tx *sql.Tx) error {
			for _, key := range some {
				dropped, err := db.Change(ctx, tx, op, query{Text: drop, Args: key})
				if err != nil {
					return err
				}
				n += dropped
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		return n, nil
	}
	for some := range slices.Chunk(keys, 100) { // a commit for each would cost more
		n, err := dropAll(some)
		if sqldb.KindOf(err) == sqldb.Held { // another session holds one of them; the others can go
			for i := range some {
				one, failed := dropAll(some[i : i+1])
				if n, err = n+one, failed; sqldb.KindOf(failed) == sqldb.Held {
					err = nil // the next purge tries again
				} else if failed != nil {
					break
				}
			}
		}
		if purged += n; err != nil {
			return purged, err
		}
	}
	return purged, nil
}
