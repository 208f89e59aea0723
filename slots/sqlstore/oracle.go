package sqlstore

import (
	"fmt"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// oracleDialect is Oracle 19c and later. Every placeholder is used once, since Oracle counts
// placeholders of SQL by position.
func oracleDialect() *dialect {
	return &dialect{
		Dialect:    sqldb.Oracle,
		find:       oracleFind,
		claim:      oracleClaim,
		statements: oracleStatements(),
		assign:     oracleAssign,
		shut:       oracleShut,
		gateSilent: true,
	}
}

// oracleFind asks for at most slots.MaxBatch events, as many as a list may have.
func oracleFind(eventIDs []string) query {
	q := query{Args: make([]any, len(eventIDs))}
	places := make([]string, len(eventIDs))
	for i, id := range eventIDs {
		places[i] = fmt.Sprintf(":%d", i+1)
		q.Args[i] = id
	}
	q.Text = oracleSQL("SELECT " + slotResults + " FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID IN (" +
		strings.Join(places, ", ") + ")")
	return q
}

// oracleRows bounds how many slots one statement inserts: long lists take Oracle
// long to parse.
const oracleRows = 50

// oracleClaim inserts slots by SELECTs from DUAL, since VALUES takes one row only
// before Oracle 23.
func oracleClaim(s slots.Series, windowMs int64, claimed []slots.Slot) []query {
	var all []query
	for from := 0; from < len(claimed); from += oracleRows {
		all = append(all, oracleInsert(s, windowMs, claimed[from:min(from+oracleRows, len(claimed))]))
	}
	return append(all, query{
		Text: oracleSQL("UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + :1 WHERE WNDW_SCOPE_NM = :2 AND WNDW_SIZE_MS = :3 AND " +
			"WNDW_STRT_TS = {4}"),
		Args: []any{int64(len(claimed)), s.Scope, s.SizeMs, sqldb.Oracle.Instant(windowMs * 1000)},
		Rows: 1,
	})
}

func oracleInsert(s slots.Series, windowMs int64, claimed []slots.Slot) query {
	q := query{Rows: int64(len(claimed))}
	rows := make([]string, len(claimed))
	for i, slot := range claimed {
		n := len(q.Args)
		rows[i] = fmt.Sprintf("SELECT :%d, :%d, :%d, :%d, {%d}, {%d}, {%d}, :%d, {now}, "+schemaNumber+" FROM DUAL", n+1, n+2,
			n+3, n+4, n+5, n+6, n+7, n+8)
		q.Args = append(q.Args, slot.ID, slot.EventID, s.Scope, s.SizeMs, sqldb.Oracle.Instant(slot.RequestedUs),
			sqldb.Oracle.Instant(windowMs*1000), sqldb.Oracle.Instant(slot.ScheduledMs*1000), slot.ConfigID)
	}
	q.Text = oracleSQL("INSERT INTO RL_EVENT_SLOT_DTL (" + slotColumns + ", SCHEMA_NB) " +
		strings.Join(rows, " UNION ALL "))
	return q
}
