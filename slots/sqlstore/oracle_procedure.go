package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// oracleInputs and oracleOutputs are how many parameters of each kind
// RL_SLOT_API.ASSIGN_SLOT has.
const (
	oracleInputs  = 15
	oracleOutputs = 14
)

// oracleCall is one round trip: outside a transaction the driver asks for the
// commit along with it, and the package commits its own work.
var oracleCall = "BEGIN RL_SLOT_API.ASSIGN_SLOT(" + oraclePlaces(oracleInputs+oracleOutputs) + "); END;"

// oraclePlaces are the placeholders :1 to :n.
func oraclePlaces(n int) string {
	places := make([]string, n)
	for i := range places {
		places[i] = fmt.Sprintf(":%d", i+1)
	}
	return strings.Join(places, ", ")
}

// oracleAssign implements dialect.assign.
func oracleAssign(ctx context.Context, db *sql.DB, s *slots.Search) (*assigned, error) {
	var r oracleResult
	args := oracleArguments(s)
	for _, to := range r.places() {
		args = append(args, sql.Out{Dest: to})
	}
	if _, err := db.ExecContext(ctx, oracleCall, args...); err != nil {
		return nil, err
	}
	return r.assigned(s)
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

// The earliest and the latest millisecond that Oracle has.
var (
	oracleFirstMs = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	oracleLastMs  = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC).UnixMilli()
)

// oracleMs binds an instant of whole milliseconds, of which there are more than Oracle has.
func oracleMs(ms int64) any {
	return sqldb.Oracle.Instant(min(max(ms, oracleFirstMs), oracleLastMs) * 1000)
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

func (r *oracleResult) assigned(s *slots.Search) (*assigned, error) {
	var t oracleTimes
	a := &assigned{
		status:     slots.Status(r.status),
		firstCount: r.firstCount,
		lowMs:      millis(t.us(r.low)),
		exhausted:  r.exhausted == 1,
		windows:    r.windows, contended: r.contended,
	}
	switch a.status {
	case slots.Unplaced, superseded, held:
	case slots.New, slots.Existing:
		a.slot = slots.Slot{
			ID: r.slotID, EventID: s.Asks[0].EventID, Series: slots.Series{Scope: r.scope, SizeMs: r.sizeMs},
			RequestedUs: t.us(r.requested), WindowMs: millis(t.us(r.window)), ScheduledMs: millis(t.us(r.scheduled)),
			ConfigID: r.configID, CreatedUs: t.us(r.created),
		}
	default:
		return nil, fmt.Errorf("RL_SLOT_API.ASSIGN_SLOT returned status %d: want 0 to 4", r.status)
	}
	if t.err != nil {
		return nil, fmt.Errorf("RL_SLOT_API.ASSIGN_SLOT returned a time that cannot be parsed: %w", t.err)
	}
	return a, nil
}

// oracleTimes reads texts and keeps the first error.
type oracleTimes struct{ err error }

// us are the microseconds of a text, zero if it is empty, which is NULL.
func (t *oracleTimes) us(text string) int64 {
	if text == "" {
		return 0
	}
	us, err := sqldb.Oracle.Micros(text)
	if err != nil && t.err == nil {
		t.err = err
	}
	return us
}
