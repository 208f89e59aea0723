package sqlstore

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// oracleStatements are the texts. An empty text is NULL in Oracle, hence NVL where one
// may come. Placeholders are bound by where they stand: their numbers must count up.
func oracleStatements() statements {
	w := words{
		arg: func(kind byte, n int) string {
			if kind == '@' {
				return sqldb.Oracle.Bound(":" + strconv.Itoa(n))
			}
			return ":" + strconv.Itoa(n)
		},
		ordered: true,
		now:     sqldb.Oracle.Now,
		dual:    " FROM DUAL",
		lock:    " FOR UPDATE",
		wait:    " FOR UPDATE WAIT 1",
		first:   "FETCH FIRST 1 ROWS ONLY",
		most:    func(arg string) string { return "FETCH FIRST " + arg + " ROWS ONLY" },
		instant: sqldb.Oracle.Selected,
		plus:    func(at, ms string) string { return at + " + NUMTODSINTERVAL(" + ms + " / 1000, 'SECOND')" },
		// Passes over rows that another session inserted since NOT EXISTS was asked.
		insert: func(table string) string {
			return "INSERT /*+ IGNORE_ROW_ON_DUPKEY_INDEX(" + table + ", " + table + "_PK) */ INTO " + table
		},
		skip: func(string) string { return "" },
		key:  func(arg string) string { return "NVL(" + arg + ", CHR(0))" },
	}
	s := w.statements()
	// There are no shared locks of rows. What PutConfig changes is locked by no mode that
	// these two are not compatible with.
	s.gate = statement{text: "LOCK TABLE RL_SLOT_GATE IN ROW SHARE MODE", order: []int{}}
	s.gateAll = statement{text: "LOCK TABLE RL_SLOT_GATE IN EXCLUSIVE MODE NOWAIT", order: []int{}}
	s.provision = oracleStatement(oracleProvision)
	s.remake = w.text("UPDATE RL_WNDW_CT SET SLOT_CT = (SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL WHERE WNDW_SCOPE_NM = :1" +
		" AND COMPUTED_SCHED_TS >= @3 AND COMPUTED_SCHED_TS < @4), CREAT_TS = {now}, EPOCH_CT = {epoch}" +
		" WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2 AND WNDW_STRT_TS = @3 AND EPOCH_CT <> {epoch}")
	s.scheduled = w.text("SELECT W.NB, COUNT(*) FROM (SELECT FLOOR((" + oracleSeconds("S.COMPUTED_SCHED_TS") + " - " +
		oracleSeconds("A.FROM_TS") +
		") * 1000 / A.SIZE_MS) NB FROM RL_EVENT_SLOT_DTL S, (SELECT :1 SCOPE_NM, #2 SIZE_MS, @3 FROM_TS, " +
		"@4 TO_TS FROM DUAL) A" +
		" WHERE S.WNDW_SCOPE_NM = A.SCOPE_NM AND S.COMPUTED_SCHED_TS >= A.FROM_TS AND S.COMPUTED_SCHED_TS < A.TO_TS) W " +
		"GROUP BY W.NB ORDER BY W.NB")
	s.purgeFrontiers = oracleStatement("DELETE FROM RL_WNDW_FRONTIER_TRK" +
		" WHERE REQ_TS + NUMTODSINTERVAL(WNDW_SIZE_MS / 1000, 'SECOND') <= {1} AND CREAT_TS < {2} AND ROWNUM <= :3")
	s.purgeWindows = oracleStatement("DELETE FROM RL_WNDW_CT"+
		" WHERE WNDW_STRT_TS <= {1} AND WNDW_STRT_TS + NUMTODSINTERVAL(WNDW_SIZE_MS / 1000, 'SECOND') <= {2}"+
		" AND CREAT_TS < {3} AND ROWNUM <= :4", 0, 0, 1, 2)
	s.purgeSlots = oracleStatement(
		"DELETE FROM RL_EVENT_SLOT_DTL WHERE CREAT_TS < {1} AND COMPUTED_SCHED_TS < {2} AND ROWNUM <= :3", 0, 0, 1)
	return s
}

// oracleSeconds is a time in seconds since the epoch. A timestamp without its fraction is
// cast, since the cast may round.
func oracleSeconds(column string) string {
	return "((CAST(TRUNC(" + column + ", 'MI') AS DATE) - DATE '1970-01-01') * 86400 + EXTRACT(SECOND FROM " +
		column + "))"
}

// oracleProvision counts by the index on (WNDW_SCOPE_NM, COMPUTED_SCHED_TS), for
// missing windows only.
const oracleProvision = "INSERT /*+ IGNORE_ROW_ON_DUPKEY_INDEX(RL_WNDW_CT, RL_WNDW_CT_PK) */" +
	" INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS, EPOCH_CT)" +
	" SELECT W.SCOPE_NM, W.SIZE_MS, W.STRT_TS, (SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL S WHERE S.WNDW_SCOPE_NM " +
	"= W.SCOPE_NM" +
	" AND S.COMPUTED_SCHED_TS >= W.STRT_TS AND S.COMPUTED_SCHED_TS < W.STRT_TS + NUMTODSINTERVAL(W.SIZE_MS / 1000, " +
	"'SECOND')), {now}," +
	" NVL((SELECT E.EPOCH_CT FROM RL_WNDW_EPOCH E WHERE E.WNDW_SCOPE_NM = W.SCOPE_NM AND E.WNDW_SIZE_MS = W.SIZE_MS), 0)" +
	" FROM (SELECT A.SCOPE_NM, A.SIZE_MS, A.FROM_TS + NUMTODSINTERVAL((LEVEL - 1) * A.SIZE_MS / 1000, 'SECOND') STRT_TS" +
	" FROM (SELECT :1 SCOPE_NM, :2 SIZE_MS, {3} FROM_TS, :4 WNDW_CT FROM DUAL) A CONNECT BY LEVEL <= A.WNDW_CT) W" +
	" WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_CT C" +
	" WHERE C.WNDW_SCOPE_NM = W.SCOPE_NM AND C.WNDW_SIZE_MS = W.SIZE_MS AND C.WNDW_STRT_TS = W.STRT_TS)" +
	" ORDER BY W.STRT_TS"

// oracleShut takes the one gate that there is. Oracle waits not at all or for whole seconds:
// it asks repeatedly, and every fourth try may keep claims waiting for a second, since
// there may always be some under way.
func oracleShut(ctx context.Context, _ *sqldb.DB, tx *sql.Tx, gates []query, try int) error {
	gate := gates[0].Text
	if try%4 == 3 {
		_, err := tx.ExecContext(ctx, strings.Replace(gate, "NOWAIT", "WAIT 1", 1))
		return err
	}
	for until := time.Now().Add(gateWait); ; time.Sleep(2 * time.Millisecond) {
		_, err := tx.ExecContext(ctx, gate)
		if err == nil || sqldb.Oracle.Kind(err) != sqldb.Held || time.Now().After(until) || ctx.Err() != nil {
			return err
		}
	}
}
