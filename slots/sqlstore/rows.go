package sqlstore

import (
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// Statements of the dialects whose placeholders are all written ?, with as many of
// them as there are events.

// keptRows is how many events a statement may be for that is kept: there is one for each number.
const keptRows = 50

// marks are n placeholders.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// findIn is dialect.find by a list.
func findIn(ids []string) query {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	return query{Text: "SELECT " + slotColumns + " FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID IN (" + marks(len(ids)) + ")",
		Args: args, Kept: len(ids) <= keptRows}
}

// claimRows returns dialect.claim by INSERTs of so many rows at most.
func claimRows(d *sqldb.Dialect, most int) func(slots.Series, int64, []slots.Slot) []query {
	return func(s slots.Series, windowMs int64, claimed []slots.Slot) (all []query) {
		for some := range slices.Chunk(claimed, most) {
			all = append(all, insertRows(d, s, windowMs, some))
		}
		window := d.Instant(windowMs * 1000)
		return append(all, query{
			Text: "UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + ? WHERE WNDW_SCOPE_NM = ? AND WNDW_SIZE_MS = ? AND " +
				"WNDW_STRT_TS = ?",
			Args: []any{int64(len(claimed)), s.Scope, s.SizeMs, window}, Rows: 1, Kept: true,
		})
	}
}

// insertRows inserts slots of one window.
func insertRows(d *sqldb.Dialect, s slots.Series, windowMs int64, claimed []slots.Slot) query {
	bind, row := d.Instant, "("+marks(8)+", "+d.Now+", "+schemaNumber+"), "
	window, n := bind(windowMs*1000), len(claimed)
	args := make([]any, 0, 8*n)
	for _, c := range claimed {
		args = append(args, c.ID, c.EventID, s.Scope, s.SizeMs, bind(c.RequestedUs), window,
			bind(c.ScheduledMs*1000), c.ConfigID)
	}
	return query{
		Text: "INSERT INTO RL_EVENT_SLOT_DTL (" + slotColumns + ", SCHEMA_NB) VALUES " +
			strings.TrimSuffix(strings.Repeat(row, n), ", "),
		Args: args, Rows: int64(n), Kept: n <= keptRows,
	}
}
