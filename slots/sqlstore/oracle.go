package sqlstore

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// oracleDialect is Oracle 19c and later.
//
// Instants cross as text in UTC: drivers bind times with a zone, and Oracle would
// then convert the column by the zone of the session. Every placeholder is used
// once, since Oracle counts placeholders of SQL by position.
func oracleDialect() *dialect {
	return &dialect{
		name:       "oracle",
		schemes:    []string{"oracle"},
		parse:      oracleParse,
		instant:    oracleInstant,
		micros:     oracleMicros,
		find:       oracleFind,
		claim:      oracleClaim,
		statements: oracleStatements(),
		migrations: oracleMigrations(),
		assign:     oracleAssign,
		classify:   oracleClassify,
	}
}

// oracleLayout is oracleFormat as Go writes it.
const (
	oracleFormat = "'YYYY-MM-DD HH24:MI:SS.FF6'"
	oracleLayout = "2006-01-02 15:04:05.000000"
)

// The earliest and the latest instant that oracleLayout can write.
var (
	oracleFirstUs = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	oracleLastUs  = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC).UnixMicro()
)

// oracleText writes an instant; one beyond the calendar becomes the last of it,
// which compares with all others in the same way.
func oracleText(us int64) string {
	us = min(max(us, oracleFirstUs), oracleLastUs)
	return time.UnixMicro(us).UTC().Format(oracleLayout)
}

func oracleInstant(us int64) any { return oracleText(us) }

// oracleMicros reads what TO_CHAR wrote.
func oracleMicros(src any) (int64, error) {
	text, ok := src.(string)
	if !ok {
		return 0, fmt.Errorf("a time of type %T: want text", src)
	}
	t, err := time.Parse(oracleLayout, text)
	if err != nil {
		return 0, err
	}
	return t.UnixMicro(), nil
}

var oracleMark = regexp.MustCompile(`\{([^}]*)\}`)

// oracleSQL fills in how times cross: {3} is the placeholder :3 of an instant, {now}
// the database's clock, and {COLUMN} an instant as text.
func oracleSQL(text string) string {
	return oracleMark.ReplaceAllStringFunc(text, func(mark string) string {
		switch inner := mark[1 : len(mark)-1]; {
		case inner == "now":
			return "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
		case inner[0] >= '0' && inner[0] <= '9':
			return "TO_TIMESTAMP(:" + inner + ", " + oracleFormat + ")"
		default:
			return "TO_CHAR(" + inner + ", " + oracleFormat + ")"
		}
	})
}

// oracleFind asks for at most slots.MaxBatch events, as many as a list may have.
func oracleFind(eventIDs []string) query {
	q := query{args: make([]any, len(eventIDs))}
	places := make([]string, len(eventIDs))
	for i, id := range eventIDs {
		places[i] = fmt.Sprintf(":%d", i+1)
		q.args[i] = id
	}
	q.text = oracleSQL("SELECT " + slotResults + " FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID IN (" + strings.Join(places, ", ") + ")")
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
		text: oracleSQL("UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + :1 WHERE WNDW_SCOPE_NM = :2 AND WNDW_SIZE_MS = :3 AND WNDW_STRT_TS = {4}"),
		args: []any{int64(len(claimed)), s.Scope, s.SizeMs, oracleInstant(windowMs * 1000)},
		rows: 1,
	})
}

func oracleInsert(s slots.Series, windowMs int64, claimed []slots.Slot) query {
	q := query{rows: int64(len(claimed))}
	rows := make([]string, len(claimed))
	for i, slot := range claimed {
		n := len(q.args)
		rows[i] = fmt.Sprintf("SELECT :%d, :%d, :%d, :%d, {%d}, {%d}, {%d}, :%d, {now} FROM DUAL", n+1, n+2, n+3, n+4, n+5, n+6, n+7, n+8)
		q.args = append(q.args, slot.ID, slot.EventID, s.Scope, s.SizeMs, oracleInstant(slot.RequestedUs),
			oracleInstant(windowMs*1000), oracleInstant(slot.ScheduledMs*1000), slot.ConfigID)
	}
	q.text = oracleSQL("INSERT INTO RL_EVENT_SLOT_DTL (" + slotColumns + ") " + strings.Join(rows, " UNION ALL "))
	return q
}
