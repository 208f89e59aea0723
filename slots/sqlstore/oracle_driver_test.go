package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/oracletest"
)

const (
	noonText = "2025-06-01 12:00:00.000000"
	lateText = "2025-06-01 12:00:02.371000"
	noonMs   = int64(1_748_779_200_000)
)

var oracleSeries = slots.Series{Scope: "payments", SizeMs: 4000}

// obliging answers every statement of a Store as a database would in which all is
// well.
func obliging(text string) (oracletest.Answer, error) {
	slot := []driver.Value{"s1", "e1", "payments", "4000", lateText, noonText, lateText, "c1", noonText}
	config := []driver.Value{"c1", "default", "100", "PT4S", nil, noonText, int64(1), noonText}
	one := func(values ...driver.Value) (oracletest.Answer, error) {
		return oracletest.Answer{Rows: [][]driver.Value{values}, Changed: 1}, nil
	}
	switch {
	case strings.HasPrefix(text, "SELECT WNDW_SLOT_ID FROM"):
		return oracletest.Answer{}, nil // the scope has no slots
	case strings.HasPrefix(text, "SELECT WNDW_SLOT_ID"):
		return one(slot...)
	case strings.HasPrefix(text, "SELECT RL_WNDW_CONFIG_ID"):
		return one(config...)
	case strings.HasPrefix(text, "SELECT TO_CHAR(C.WNDW_STRT_TS") && strings.Contains(text, "RL_EVENT_SLOT_DTL S"):
		return one(noonText, int64(3), int64(2))
	case strings.HasPrefix(text, "SELECT TO_CHAR(C.WNDW_STRT_TS") && strings.Contains(text, "EPOCH_CT <>"):
		return one(noonText)
	case strings.HasPrefix(text, "SELECT W.NB"):
		return one(int64(0), int64(7))
	case strings.HasPrefix(text, "SELECT TO_CHAR(C.WNDW_STRT_TS"):
		return one(noonText, int64(3))
	case strings.HasPrefix(text, "SELECT TO_CHAR(MIN(RUN_STRT_TS"):
		return one(noonText, lateText)
	case strings.HasPrefix(text, "SELECT TO_CHAR(M"), strings.HasPrefix(text, "SELECT TO_CHAR(RUN_END_TS"):
		return one(noonText)
	case strings.HasPrefix(text, "SELECT SLOT_CT, "):
		return one(int64(3), int64(1))
	case strings.HasPrefix(text, "SELECT HOLDER_ID"):
		return one(nil)
	case strings.HasPrefix(text, "SELECT SLOT_CT"), strings.HasPrefix(text, "SELECT GEN_CT"):
		return one(int64(3))
	case strings.HasPrefix(text, "SELECT TO_CHAR(SYS_EXTRACT_UTC("):
		return one(noonText)
	case strings.HasPrefix(text, "SELECT COUNT(*)"):
		return one(int64(2))
	case strings.HasPrefix(text, "SELECT SCRIPT_NM"), strings.HasPrefix(text, "SELECT NAME"),
		strings.HasPrefix(text, "SELECT 1 FROM ALL_TABLES"):
		return oracletest.Answer{}, nil // nothing applied, no mistakes, no Flyway
	case strings.HasPrefix(text, "INSERT INTO RL_EVENT_SLOT_DTL"):
		return oracletest.Answer{Changed: int64(strings.Count(text, "FROM DUAL"))}, nil
	case strings.HasPrefix(text, "BEGIN RL_SLOT_API"):
		return oracletest.Answer{Out: []any{1, "s1", "payments", 4000, lateText, noonText, lateText, "c1", "", 7, noonText,
			0, 1, 0}}, nil
	}
	return oracletest.Answer{Changed: 1}, nil
}

// everyMethod calls all of a Store, so that the fake notes every statement.
func everyMethod(t *testing.T, db *DB) {
	t.Helper()
	ctx := context.Background()
	var failed []error
	try := func(_ any, err error) { failed = append(failed, err) }
	try(db.Migrate(ctx))
	for _, n := range []int{1, 3, slots.MaxBatch} {
		try(db.Find(ctx, make([]string, n)))
	}
	_, _, err := db.Peek(ctx, oracleSeries, noonMs)
	try(nil, err)
	_, _, err = db.Scout(ctx, oracleSeries, noonMs, noonMs+40_000, 100)
	try(nil, err)
	_, _, err = db.Frontier(ctx, oracleSeries, noonMs)
	try(nil, err)
	try(db.Provision(ctx, oracleSeries, noonMs, noonMs+40_000, &slots.Frontier{ChunkMs: noonMs, EndMs: noonMs + 40_000}))
	tx, err := db.Begin(ctx, "c1")
	try(nil, err)
	held, _, err := db.BeginActive(ctx, "default")
	try(nil, err)
	held.Rollback()
	_, _, err = tx.Lock(ctx, oracleSeries, noonMs, 100)
	try(nil, err)
	try(nil, tx.Claim(ctx, oracleSeries, noonMs, make([]slots.Slot, 2*oracleRows+3)))
	try(nil, tx.Commit(ctx))
	try(db.Procedure().Call(ctx, oracleSearch()))
	try(db.ActiveConfig(ctx, "default"))
	try(db.ActiveConfigs(ctx, 10))
	try(db.PutConfig(ctx, slots.Config{ID: "c1", Name: "default", Max: 100, SizeMs: 4000}, nowhere))
	try(db.PutConfig(ctx, slots.Config{ID: "c1", Name: "default", Max: 100, SizeMs: 7000,
		Options: slots.Options{Stratified: true}}, byName))
	try(db.PutConfig(ctx, slots.Config{ID: "c3", Name: "default", Max: 100, SizeMs: 4000},
		func(c slots.Config) slots.Series { return slots.Series{Scope: c.ID, SizeMs: c.SizeMs} }))
	try(db.PutConfig(ctx, slots.Config{ID: "c2", Name: "other", Max: 100, SizeMs: 7000}, byName))
	try(nil, db.NoteFull(ctx, oracleSeries, 100, slots.Span{FromMs: noonMs, ToMs: noonMs + 4000}, 3))
	try(db.Scope(ctx, slots.ScopeShared))
	try(db.Adopted(ctx))
	try(db.Generation(ctx))
	try(db.Flush(ctx))
	try(db.SlotsSince(ctx, slots.Position{}, 10))
	try(db.Windows(ctx, oracleSeries, noonMs, noonMs+40_000, 10))
	try(db.Scheduled(ctx, oracleSeries, noonMs, noonMs+40_000))
	try(db.Lead(ctx, "upkeep", "me", time.Second))
	try(db.Now(ctx))
	try(db.PurgeWindows(ctx, noonMs, time.Now().Add(time.Hour).UnixMicro(), 10))
	try(db.PurgeSlots(ctx, noonMs*1000, 10))
	_, _, err = db.Drift(ctx, noonMs, noonMs+40_000, nil, 10, true)
	try(nil, err)
	if err := errors.Join(failed...); err != nil {
		t.Fatalf("the fake obliges, but: %v", err)
	}
}

// oracleSearch is for one event at 12:00:00.
func oracleSearch() *slots.Search {
	return &slots.Search{
		Series: oracleSeries, ConfigID: "c1", Max: 100, FirstMs: noonMs, FromMs: noonMs + 4000,
		EndMs: 1 << 60 / 1000,
		Asks: []slots.Ask{{EventID: "e1", SlotID: "s1", RequestedUs: noonMs*1000 + 1, ElapsedMs: 1, FirstMax: 99,
			Bits: 1<<31 - 1}},
	}
}

// sent is every statement that the dialect sends.
func sent(t *testing.T) []oracletest.Call {
	t.Helper()
	f := &oracletest.Fake{Answer: func(text string) (oracletest.Answer, error) {
		if strings.Contains(text, "HELD_UNTIL_TS") && strings.HasPrefix(text, "UPDATE") ||
			strings.HasPrefix(text, "UPDATE RL_WNDW_EPOCH") {
			return oracletest.Answer{}, nil // another leads, and there is no epoch: the row is added
		}
		return obliging(text)
	}}
	everyMethod(t, oracleStore(t, f))
	return f.Statements()
}

// Text and whole numbers alone, and as many as there are placeholders.
func TestOracleArguments(t *testing.T) {
	for _, c := range sent(t) {
		if scripted(t, c.Text) {
			continue
		}
		if err := oracletest.CheckArguments(c); err != nil {
			t.Errorf("%v in %s", err, c.Text)
		}
	}
}

// scripted reports whether a text is of a migration script, which has no arguments.
func scripted(t *testing.T, text string) bool {
	for _, s := range scriptsOf(t, sqldb.Oracle) {
		if slices.Contains(s.statements(""), text) {
			return true
		}
	}
	return false
}

// Every text of the dialect is sent by something, and so is seen by the checks of
// this file and of the grammar.
func TestOracleAllSent(t *testing.T) {
	all := map[string]bool{}
	for _, c := range sent(t) {
		all[c.Text] = true
	}
	v := reflect.ValueOf(oracleDialect().statements)
	for i := range v.NumField() {
		text := v.Field(i).FieldByName("text").String()
		name := v.Type().Field(i).Name
		if text == "" {
			t.Errorf("there is no statement %s", name)
		} else if !all[text] {
			t.Errorf("statement %s was not sent: %s", name, text)
		}
	}
}

// One assignment is one round trip, without a transaction around it.
func TestOracleProcedureOneTrip(t *testing.T) {
	f := &oracletest.Fake{Answer: obliging}
	found, err := oracleStore(t, f).Procedure().Call(t.Context(), oracleSearch())
	if err != nil {
		t.Fatal(err)
	}
	if texts := f.Texts(); len(texts) != 2 || texts[0] != oracletest.Connect ||
		!strings.HasPrefix(texts[1], "BEGIN RL_SLOT_API.ASSIGN_SLOT(:1, ") {
		t.Errorf("sent %q, want one call", texts)
	}
	want := slots.Found{
		Answers: []slots.Answer{{Status: slots.New, Slot: slots.Slot{
			ID: "s1", EventID: "e1", Series: oracleSeries, RequestedUs: (noonMs + 2371) * 1000, WindowMs: noonMs,
			ScheduledMs: noonMs + 2371, ConfigID: "c1",
		}}},
		FirstCount: 7, Windows: 1,
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("found\n%+v, want\n%+v", found, want)
	}
	var in []string
	for _, a := range f.Statements()[0].Args[:oracleInputs] {
		in = append(in, fmt.Sprint(a.Value))
	}
	if got, want := strings.Join(in, "|"), "e1|s1|payments|4000|c1|100|0|2025-06-01 12:00:00.000001|1|99|2147483647|"+
		noonText+"|"+
		"2025-06-01 12:00:04.000000|0|9999-12-31 23:59:59.999999"; got != want {
		t.Errorf("arguments\n%s, want\n%s", got, want)
	}
}

// An unknown status or an invalid time is an error, not a slot at the epoch.
func TestOracleProcedureNonsense(t *testing.T) {
	for _, out := range [][]any{
		{5, "s1", "payments", 4000, lateText, noonText, lateText, "c1", "", 7, noonText, 0, 1, 0},
		{1, "s1", "payments", 4000, lateText, "01-JUN-25 12.00.00", lateText, "c1", "", 7, noonText, 0, 1, 0},
	} {
		f := &oracletest.Fake{Answer: func(string) (oracletest.Answer, error) { return oracletest.Answer{Out: out}, nil }}
		_, err := oracleStore(t, f).Procedure().Call(t.Context(), oracleSearch())
		if slots.KindOf(err) != slots.Failed || err == nil {
			t.Errorf("with %v: %v, want it failed", out, err)
		}
	}
}

// Rows become slots and configs.
func TestOracleReads(t *testing.T) {
	db := oracleStore(t, &oracletest.Fake{Answer: obliging})
	found, err := db.Find(t.Context(), []string{"e1"})
	want := []slots.Slot{{ID: "s1", EventID: "e1", Series: oracleSeries, RequestedUs: (noonMs + 2371) * 1000,
		WindowMs: noonMs, ScheduledMs: noonMs + 2371, ConfigID: "c1", CreatedUs: noonMs * 1000}}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("find: %+v, %v, want %+v", found, err, want)
	}
	c, err := db.ActiveConfig(t.Context(), "default")
	if err != nil || c.Max != 100 || c.SizeMs != 4000 || !c.Active || c.SinceUs != noonMs*1000 {
		t.Errorf("config: %+v, %v", c, err)
	}
}
