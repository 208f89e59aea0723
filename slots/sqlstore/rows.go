package sqlstore

import (
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// Statements with as many placeholders as there are events.

// keptRows is how many events a statement may be for that is kept: there is one for each number.
const keptRows = 50

// findIn returns dialect.find by a list.
func findIn(d *sqldb.Dialect) func(ids []string) query {
	columns := wordPattern.ReplaceAllStringFunc(slotResults,
		func(mark string) string { return d.Selected(mark[1 : len(mark)-1]) })
	return func(ids []string) query {
		places, args := sqldb.Listed(ids)
		q := d.Query("SELECT "+columns+" FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID IN ("+places+")", args...)
		q.Kept = len(ids) <= keptRows
		return q
	}
}

// claimRows returns dialect.claim by INSERTs of so many rows at most. The texts stand before the
// rows, between them and after them.
func claimRows(d *sqldb.Dialect, most int, before, between,
	after string) func(slots.Series, int64, []slots.Slot) []query {
	return func(s slots.Series, windowMs int64, claimed []slots.Slot) (all []query) {
		for some := range slices.Chunk(claimed, most) {
			all = append(all, insertRows(d, s, windowMs, some, before, between, after))
		}
		q := d.Query("UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + ? WHERE WNDW_SCOPE_NM = ? AND WNDW_SIZE_MS = ? AND "+
			"WNDW_STRT_TS = "+d.Bound("?"), int64(len(claimed)), s.Scope, s.SizeMs, d.Instant(windowMs*1000))
		q.Rows, q.Kept = 1, true
		return append(all, q)
	}
}

// insertRows inserts slots of one window.
func insertRows(d *sqldb.Dialect, s slots.Series, windowMs int64, claimed []slots.Slot,
	before, between, after string) query {
	bind, at := d.Instant, d.Bound("?")
	row := "?, ?, ?, ?, " + at + ", " + at + ", " + at + ", ?, " + d.Now + ", " + schemaNumber
	window, n := bind(windowMs*1000), len(claimed)
	args := make([]any, 0, 8*n)
	for _, c := range claimed {
		args = append(args, c.ID, c.EventID, s.Scope, s.SizeMs, bind(c.RequestedUs), window,
			bind(c.ScheduledMs*1000), c.ConfigID)
	}
	q := d.Query("INSERT INTO RL_EVENT_SLOT_DTL ("+slotColumns+", SCHEMA_NB) "+before+
		strings.TrimSuffix(strings.Repeat(row+between, n), between)+after, args...)
	q.Rows, q.Kept = int64(n), n <= keptRows
	return q
}
