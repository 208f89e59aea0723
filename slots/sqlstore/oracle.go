package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// oracleDialect is Oracle 19c and later. Every placeholder is used once, since Oracle counts
// placeholders of SQL by position.
func oracleDialect() *dialect {
	return &dialect{
		Dialect: sqldb.Oracle,
		find:    findIn(sqldb.Oracle),
		// SELECTs from DUAL, since VALUES takes one row only before Oracle 23.
		claim:      claimRows(sqldb.Oracle, oracleRows, "SELECT ", " FROM DUAL UNION ALL SELECT ", " FROM DUAL"),
		statements: oracleStatements(),
		assign:     oracleAssign,
		shut:       oracleShut,
		gateSilent: true,
	}
}

// oracleRows bounds how many slots one statement inserts: long lists take Oracle
// long to parse.
const oracleRows = 50

// oracleInsert passes over rows that another session inserted since NOT EXISTS was asked.
const oracleInsert = "INSERT /*+ IGNORE_ROW_ON_DUPKEY_INDEX($1, $1_PK) */ INTO $1"

// oracleStatements are the texts. An empty text is NULL in Oracle, hence NVL where one
// may come. Placeholders are bound by where they stand: their numbers must count up.
func oracleStatements() statements {
	w := words{
		Dialect: sqldb.Oracle,
		place:   func(n int) string { return ":" + strconv.Itoa(n) },
		ordered: true,
		texts: map[string]string{
			"dual":   " FROM DUAL",
			"lock":   " FOR UPDATE",
			"wait":   " FOR UPDATE WAIT 1",
			"most":   "FETCH FIRST $1 ROWS ONLY",
			"plus":   "$1 + NUMTODSINTERVAL($2 / 1000, 'SECOND')",
			"insert": oracleInsert,
			"fill":   oracleInsert,
			"key":    "NVL($1, CHR(0))",
		},
	}
	s := w.statements()
	// There are no shared locks of rows. What PutConfig changes is locked by no mode that
	// these two are not compatible with.
	s.gate = statement{text: "LOCK TABLE RL_SLOT_GATE IN ROW SHARE MODE", order: []int{}}
	s.gateAll = statement{text: "LOCK TABLE RL_SLOT_GATE IN EXCLUSIVE MODE NOWAIT", order: []int{}}
	s.provision = w.text(oracleProvision)
	s.remake = w.text("UPDATE RL_WNDW_CT SET SLOT_CT = (SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL WHERE WNDW_SCOPE_NM = :1" +
		" AND COMPUTED_SCHED_TS >= @3 AND COMPUTED_SCHED_TS < @4), CREAT_TS = {now}, EPOCH_CT = {epoch}" +
		" WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2 AND WNDW_STRT_TS = @3 AND EPOCH_CT <> {epoch}")
	s.scheduled = w.text("SELECT W.NB, COUNT(*) FROM (SELECT FLOOR((" + oracleSeconds("S.COMPUTED_SCHED_TS") + " - " +
		oracleSeconds("A.FROM_TS") +
		") * 1000 / A.SIZE_MS) NB FROM RL_EVENT_SLOT_DTL S, (SELECT :1 SCOPE_NM, #2 SIZE_MS, @3 FROM_TS, " +
		"@4 TO_TS FROM DUAL) A" +
		" WHERE S.WNDW_SCOPE_NM = A.SCOPE_NM AND S.COMPUTED_SCHED_TS >= A.FROM_TS AND S.COMPUTED_SCHED_TS < A.TO_TS) W " +
		"GROUP BY W.NB ORDER BY W.NB")
	s.purgeFrontiers = w.text("DELETE FROM RL_WNDW_FRONTIER_TRK" +
		" WHERE {plus REQ_TS|WNDW_SIZE_MS} <= @1 AND CREAT_TS < @2 AND ROWNUM <= #3")
	s.purgeRuns = w.text("DELETE FROM RL_WNDW_FULL_RUN WHERE RUN_END_TS < @1")
	s.purgeWindows = w.text("DELETE FROM RL_WNDW_CT WHERE WNDW_STRT_TS <= @1" +
		" AND {plus WNDW_STRT_TS|WNDW_SIZE_MS} <= @1 AND CREAT_TS < @2 AND ROWNUM <= #3")
	s.purgeSlots = w.text(
		"DELETE FROM RL_EVENT_SLOT_DTL WHERE CREAT_TS < @1 AND COMPUTED_SCHED_TS < @1 AND ROWNUM <= #2")
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
const oracleProvision = "{insert RL_WNDW_CT} (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS, EPOCH_CT)" +
	" SELECT W.SCOPE_NM, W.SIZE_MS, W.STRT_TS, (SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL S WHERE S.WNDW_SCOPE_NM " +
	"= W.SCOPE_NM AND S.COMPUTED_SCHED_TS >= W.STRT_TS AND S.COMPUTED_SCHED_TS < {plus W.STRT_TS|W.SIZE_MS}), {now}," +
	" NVL((SELECT E.EPOCH_CT FROM RL_WNDW_EPOCH E WHERE E.WNDW_SCOPE_NM = W.SCOPE_NM AND E.WNDW_SIZE_MS = W.SIZE_MS), 0)" +
	" FROM (SELECT A.SCOPE_NM, A.SIZE_MS, {plus A.FROM_TS|(LEVEL - 1) * A.SIZE_MS} STRT_TS" +
	" FROM (SELECT :1 SCOPE_NM, #2 SIZE_MS, @3 FROM_TS, #4 WNDW_CT FROM DUAL) A CONNECT BY LEVEL <= A.WNDW_CT) W" +
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

// oracleInputs and oracleOutputs are how many parameters of each kind
// RL_SLOT_API.ASSIGN_SLOT has.
const (
	oracleInputs  = 15
	oracleOutputs = 14
)

// oracleCall is one round trip: outside a transaction the driver asks for the
// commit along with it, and the package commits its own work.
var oracleCall = sqldb.Oracle.Query("BEGIN RL_SLOT_API.ASSIGN_SLOT(" +
	sqldb.Repeated("?", oracleInputs+oracleOutputs) + "); END;").Text

// oracleAssign implements dialect.assign.
func oracleAssign(ctx context.Context, db *sql.DB, s *slots.Search) (slots.Found, error) {
	var r oracleResult
	args := oracleArguments(s)
	for _, to := range r.places() {
		args = append(args, sql.Out{Dest: to})
	}
	if _, err := db.ExecContext(ctx, oracleCall, args...); err != nil {
		return slots.Found{}, err
	}
	return r.found(s)
}

// oracleArguments are those of a search for one event, in the order of the
// package's parameters.
func oracleArguments(s *slots.Search) []any {
	a := &s.Asks[0]
	return []any{
		a.EventID, a.SlotID, s.Scope, s.SizeMs, s.ConfigID, s.Max, oracleFlag(s.Stratified),
		sqldb.Oracle.Instant(a.RequestedUs), a.ElapsedMs, a.FirstMax, int64(a.Bits & (1<<31 - 1)),
		oracleMs(s.FirstMs), oracleMs(s.FromMs), oracleFlag(s.Direct),
		oracleMs(s.EndMs),
	}
}

// oracleMs binds an instant in milliseconds. One whose microseconds do not fit in an int64 becomes the nearest that do.
func oracleMs(ms int64) any {
	return sqldb.Oracle.Instant(min(max(ms, math.MinInt64/1000), math.MaxInt64/1000) * 1000)
}

func oracleFlag(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

// An oracleResult is what the package's OUT parameters are read into: text, and
// numbers that are never NULL.
type oracleResult struct {
	status                                 int64
	slotID, scope                          string
	sizeMs                                 int64
	requested, window, scheduled, configID string
	created                                string
	firstCount                             int64
	low                                    string
	exhausted, windows, contended          int64
}

// places are the results in the order of the package's parameters.
func (r *oracleResult) places() []any {
	return []any{
		&r.status, &r.slotID, &r.scope, &r.sizeMs, &r.requested, &r.window, &r.scheduled, &r.configID, &r.created,
		&r.firstCount, &r.low, &r.exhausted, &r.windows, &r.contended,
	}
}

// found is what the package has answered.
func (r *oracleResult) found(s *slots.Search) (slots.Found, error) {
	const op = "assign a slot by procedure"
	var wrong error // the first time that cannot be parsed
	us := func(text string) int64 {
		if text == "" { // NULL
			return 0
		}
		us, err := sqldb.Oracle.Micros(text)
		wrong = cmp.Or(wrong, err)
		return us
	}
	answer := slots.Answer{Status: slots.Status(r.status)}
	f := slots.Found{FirstCount: r.firstCount, Exhausted: r.exhausted == 1, Windows: int(r.windows),
		Contended: int(r.contended)}
	if lowMs := millis(us(r.low)); lowMs > s.FromMs {
		f.Full = []slots.Span{{FromMs: s.FromMs, ToMs: lowMs}}
	}
	switch answer.Status {
	case slots.Unplaced:
	case superseded:
		return f, &slots.StoreError{Kind: slots.Superseded, Op: op, Err: errors.New("the config has a newer version")}
	case held:
		return f, &slots.StoreError{Kind: slots.Held, Op: op, Err: errors.New("other sessions hold or fill the windows")}
	case slots.New, slots.Existing:
		answer.Slot = slots.Slot{
			ID: r.slotID, EventID: s.Asks[0].EventID, Series: slots.Series{Scope: r.scope, SizeMs: r.sizeMs},
			RequestedUs: us(r.requested), WindowMs: millis(us(r.window)), ScheduledMs: millis(us(r.scheduled)),
			ConfigID: r.configID, CreatedUs: us(r.created),
		}
	default:
		return f, fmt.Errorf("RL_SLOT_API.ASSIGN_SLOT returned status %d: want 0 to 4", r.status)
	}
	if wrong != nil {
		return f, fmt.Errorf("RL_SLOT_API.ASSIGN_SLOT returned a time that cannot be parsed: %w", wrong)
	}
	f.Answers = []slots.Answer{answer}
	return f, nil
}

// Procedure implements slots.Store.
func (db *DB) Procedure() slots.Procedure {
	if db.dialect.assign == nil {
		return nil
	}
	return procedure{db}
}

// HadProcedure reports whether the database had a procedure in earlier versions, and has none now.
func (db *DB) HadProcedure() bool { return db.dialect.Dialect == sqldb.Postgres }

// procedure implements slots.Procedure.
type procedure struct{ db *DB }

// What procedures answer beside the values of slots.Status: the version of the config is
// not the active one; or another session holds the window, or windows that seemed to have room
// had none, which the engine tx deals with.
const (
	superseded slots.Status = 3
	held       slots.Status = 4
)

// Call implements slots.Procedure.
func (p procedure) Call(ctx context.Context, s *slots.Search) (slots.Found, error) {
	const op = "assign a slot by procedure"
	if len(s.Asks) != 1 {
		return slots.Found{}, &slots.StoreError{Kind: slots.Failed, Op: op,
			Err: errors.New("a procedure places one event at a time")}
	}
	found, err := p.db.dialect.assign(ctx, p.db.sql.Write, s)
	if err != nil && !errors.As(err, new(*slots.StoreError)) {
		err = p.db.sql.Fail(ctx, op, err)
	}
	if err != nil {
		found = slots.Found{Answers: make([]slots.Answer, 1), FirstCount: -1}
	}
	return found, err
}
