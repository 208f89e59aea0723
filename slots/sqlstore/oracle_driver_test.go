package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

const (
	noonText = "2025-06-01 12:00:00.000000"
	lateText = "2025-06-01 12:00:02.371000"
	noonMs   = int64(1_748_779_200_000)
)

var oracleSeries = slots.Series{Scope: "payments", SizeMs: 4000}

// obliging answers every statement of a Store as a database would in which all is
// well.
func obliging(text string) (fakeAnswer, error) {
	slot := []driver.Value{"s1", "e1", "payments", "4000", lateText, noonText, lateText, "c1", noonText}
	config := []driver.Value{"c1", "default", "100", "PT4S", nil, noonText, int64(1), noonText}
	one := func(values ...driver.Value) (fakeAnswer, error) {
		return fakeAnswer{rows: [][]driver.Value{values}, changed: 1}, nil
	}
	switch {
	case strings.HasPrefix(text, "SELECT WNDW_SLOT_ID FROM"):
		return fakeAnswer{}, nil // the scope has no slots
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
	case strings.HasPrefix(text, "SELECT COUNT(*)"):
		return one(int64(2))
	case strings.HasPrefix(text, "SELECT SCRIPT_NM"), strings.HasPrefix(text, "SELECT NAME"), strings.HasPrefix(text, "SELECT 1 FROM ALL_TABLES"):
		return fakeAnswer{}, nil // nothing applied, no mistakes, no Flyway
	case strings.HasPrefix(text, "INSERT INTO RL_EVENT_SLOT_DTL"):
		return fakeAnswer{changed: int64(strings.Count(text, "FROM DUAL"))}, nil
	case strings.HasPrefix(text, "BEGIN RL_SLOT_API"):
		return fakeAnswer{out: []any{1, "s1", "payments", 4000, lateText, noonText, lateText, "c1", "", 7, noonText, 0, 1, 0}}, nil
	}
	return fakeAnswer{changed: 1}, nil
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
	try(db.PutConfig(ctx, slots.Config{ID: "c1", Name: "default", Max: 100, SizeMs: 7000, Options: slots.Options{Stratified: true}}, slots.PutOptions{}))
	try(db.PutConfig(ctx, slots.Config{ID: "c3", Name: "default", Max: 100, SizeMs: 4000}, slots.PutOptions{
		SeriesOf: func(c slots.Config) slots.Series { return slots.Series{Scope: c.ID, SizeMs: c.SizeMs} }}))
	try(db.PutConfig(ctx, slots.Config{ID: "c2", Name: "other", Max: 100, SizeMs: 7000}, slots.PutOptions{}))
	try(nil, db.NoteFull(ctx, oracleSeries, 100, slots.Span{FromMs: noonMs, ToMs: noonMs + 4000}, 3))
	try(db.Scope(ctx, slots.ScopeShared))
	try(db.Adopted(ctx))
	try(db.Generation(ctx))
	try(db.Flush(ctx))
	try(db.SlotsSince(ctx, slots.Position{}, 10))
	try(db.Windows(ctx, oracleSeries, noonMs, noonMs+40_000, 10))
	try(db.Scheduled(ctx, oracleSeries, noonMs, noonMs+40_000))
	try(db.Lead(ctx, "upkeep", "me", time.Second))
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
		Asks:  []slots.Ask{{EventID: "e1", SlotID: "s1", RequestedUs: noonMs*1000 + 1, ElapsedMs: 1, FirstMax: 99, Bits: 1<<31 - 1}},
	}
}

// sent is every statement that the dialect sends.
func sent(t *testing.T) []fakeCall {
	t.Helper()
	f := &fakeOracle{answer: func(text string) (fakeAnswer, error) {
		if strings.Contains(text, "HELD_UNTIL_TS") && strings.HasPrefix(text, "UPDATE") || strings.HasPrefix(text, "UPDATE RL_WNDW_EPOCH") {
			return fakeAnswer{}, nil // another leads, and there is no epoch: the row is added
		}
		return obliging(text)
	}}
	everyMethod(t, f.store(t))
	return f.statements()
}

var placeholderN = regexp.MustCompile(`:(\d+)`)

// Text and whole numbers alone, and as many as there are placeholders.
func TestOracleArguments(t *testing.T) {
	for _, c := range sent(t) {
		if scripted(t, c.text) {
			continue
		}
		if err := checkArguments(c); err != nil {
			t.Errorf("%v in %s", err, c.text)
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

func checkArguments(c fakeCall) error {
	marks := placeholderN.FindAllStringSubmatch(c.text, -1)
	if len(marks) != len(c.args) {
		return fmt.Errorf("%d placeholders and %d arguments", len(marks), len(c.args))
	}
	for i, m := range marks {
		// Drivers bind by where a placeholder stands, whatever its number.
		if m[1] != strconv.Itoa(i+1) {
			return fmt.Errorf("placeholder :%s stands at place %d", m[1], i+1)
		}
	}
	for _, a := range c.args {
		switch v := a.Value.(type) {
		case string, int64, nil:
		case sql.Out:
			if k := reflect.TypeOf(v.Dest); k != reflect.TypeFor[*string]() && k != reflect.TypeFor[*int64]() {
				return fmt.Errorf("an OUT parameter of type %v", k)
			}
		default:
			return fmt.Errorf("an argument of type %T", v)
		}
	}
	return nil
}

// The check of arguments must bite.
func TestOracleArgumentsWrong(t *testing.T) {
	text := func(values ...any) (args []driver.NamedValue) {
		for _, v := range values {
			args = append(args, driver.NamedValue{Value: v})
		}
		return args
	}
	for _, c := range []fakeCall{
		{text: "SELECT :1, :2 FROM DUAL", args: text("a")},
		{text: "SELECT :1 FROM DUAL", args: text("a", "b")},
		{text: "SELECT :2, :1 FROM DUAL", args: text("a", "b")},
		{text: "SELECT :1, :1 FROM DUAL", args: text("a", "b")},
		{text: "SELECT :1 FROM DUAL", args: text(time.Now())},
		{text: "SELECT :1 FROM DUAL", args: text(true)},
		{text: "SELECT :1 FROM DUAL", args: text(1.5)},
		{text: "BEGIN P(:1); END;", args: text(sql.Out{Dest: new(sql.NullInt64)})},
	} {
		if checkArguments(c) == nil {
			t.Errorf("no complaint about %s with %v", c.text, c.args)
		}
	}
}

// Every text of the dialect is sent by something, and so is seen by the checks of
// this file and of the grammar.
func TestOracleAllSent(t *testing.T) {
	all := map[string]bool{}
	for _, c := range sent(t) {
		all[c.text] = true
	}
	v := reflect.ValueOf(oracleDialect().statements)
	for i := range v.NumField() {
		text := v.Field(i).FieldByName("text").String()
		if name := v.Type().Field(i).Name; text == "" {
			t.Errorf("there is no statement %s", name)
		} else if !all[text] {
			t.Errorf("statement %s was not sent: %s", name, text)
		}
	}
}

// One assignment is one round trip, without a transaction around it.
func TestOracleProcedureOneTrip(t *testing.T) {
	f := &fakeOracle{answer: obliging}
	found, err := f.store(t).Procedure().Call(t.Context(), oracleSearch())
	if err != nil {
		t.Fatal(err)
	}
	if texts := f.texts(); len(texts) != 2 || texts[0] != fakeConnect || !strings.HasPrefix(texts[1], "BEGIN RL_SLOT_API.ASSIGN_SLOT(:1, ") {
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
	for _, a := range f.statements()[0].args[:oracleInputs] {
		in = append(in, fmt.Sprint(a.Value))
	}
	if got, want := strings.Join(in, "|"), "e1|s1|payments|4000|c1|100|0|2025-06-01 12:00:00.000001|1|99|2147483647|"+noonText+"|"+
		"2025-06-01 12:00:04.000000|0|9999-12-31 23:59:59.999000"; got != want {
		t.Errorf("arguments\n%s, want\n%s", got, want)
	}
}

// An unknown status or an invalid time is an error, not a slot at the epoch.
func TestOracleProcedureNonsense(t *testing.T) {
	for _, out := range [][]any{
		{5, "s1", "payments", 4000, lateText, noonText, lateText, "c1", "", 7, noonText, 0, 1, 0},
		{1, "s1", "payments", 4000, lateText, "01-JUN-25 12.00.00", lateText, "c1", "", 7, noonText, 0, 1, 0},
	} {
		f := &fakeOracle{answer: func(string) (fakeAnswer, error) { return fakeAnswer{out: out}, nil }}
		_, err := f.store(t).Procedure().Call(t.Context(), oracleSearch())
		if slots.KindOf(err) != slots.Failed || err == nil {
			t.Errorf("with %v: %v, want it failed", out, err)
		}
	}
}

// Rows become slots and configs.
func TestOracleReads(t *testing.T) {
	db := (&fakeOracle{answer: obliging}).store(t)
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
