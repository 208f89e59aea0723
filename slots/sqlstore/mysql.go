package sqlstore

import (
	"context"
	"database/sql"
	"errors"
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
		shut:       mysqlShut,
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
			// In this order: the join reads no row but those of the keys.
			"purge": "DELETE T FROM (SELECT $2 FROM $1 WHERE $3 FOR UPDATE SKIP LOCKED) D STRAIGHT_JOIN $1 T USING ($2)",
			// The innermost query locks entries of the index only. {purge} would lock each row that it reads.
			"purgeBy": "DELETE T FROM (SELECT $2 FROM (SELECT $2 FROM $1 FORCE INDEX ($4) WHERE $3) C" +
				" STRAIGHT_JOIN $1 USING ($2) LIMIT 1000000 FOR UPDATE SKIP LOCKED) D STRAIGHT_JOIN $1 T USING ($2)",
		},
	}
}

func mysqlStatements() statements {
	w := mysqlWords()
	s := w.statements()
	s.gate = text("SELECT ACT_IN FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = ? LOCK IN SHARE MODE")
	s.gateAll = text("SELECT ACT_IN FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = ? FOR UPDATE")
	return s
}
