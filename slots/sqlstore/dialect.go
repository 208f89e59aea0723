package sqlstore

import (
	"context"
	"database/sql"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// A dialect is everything about slots that differs between databases, as data and a few
// functions. Outside the files of the dialects nothing names one.
type dialect struct {
	*sqldb.Dialect

	// find selects the slots of events, in the columns slotColumns.
	find func(eventIDs []string) query
	// claim is what Tx.Claim runs, in this order: it inserts the slots, CREAT_TS by the
	// database's clock, and adds their number to the window's count. The last query must
	// change one row, the window's; the others as many as their slots are.
	claim func(s slots.Series, windowMs int64, claimed []slots.Slot) []query

	// place is what Tables.Place runs after the gate, in this order; nil: it cannot. It adds the
	// number of the slots to the window's count, if the version of the config is the active one and
	// the count is below max by that number or more, and inserts the slots, as claim does. The last
	// query sets count to what it is then. It returns no row, or an error that is refused, if
	// nothing was changed. If placeGates, it is the gate, too, and an error of a lock does not
	// say which of both was held.
	place func(configID string, s slots.Series, windowMs, max int64, claimed []slots.Slot,
		count *sql.NullInt64) []query
	placeGates bool
	refused    func(err error) bool

	// boundedWait, if there is one, has the statements of a transaction that follow wait for
	// locks for a second at most, as the gate does, too.
	boundedWait string

	// shut runs gateAll for each version, and waits for claims under way for no longer than
	// gateWait each: those that begin meanwhile wait, too. try counts from 0. It is nil where
	// there are no gates.
	shut func(ctx context.Context, db *sqldb.DB, tx *sql.Tx, gates []query, try int) error

	statements statements
	gateSilent bool // statements.gate returns no row
	gateActive bool // statements.gate returns ACT_IN, and statements.lock does not

	// assign calls the procedure for the one event of a search, or is nil if there
	// is none.
	assign func(ctx context.Context, db *sql.DB, s *slots.Search) (slots.Found, error)
}

type query = sqldb.Query

// A statement is a text with placeholders and which arguments they stand for, as
// positions in the list that its field in statements documents; nil: that list.
type statement struct {
	text  string
	order []int
	kept  bool // see sqldb.Query
}

// text makes a statement whose placeholders are the documented arguments.
func text(sql string) statement { return statement{text: sql} }

// with fills in the arguments.
func (s statement) with(args ...any) query {
	if s.order == nil {
		return query{Text: s.text, Args: args, Kept: s.kept}
	}
	ordered := make([]any, len(s.order))
	for i, at := range s.order {
		ordered[i] = args[at]
	}
	return query{Text: s.text, Args: ordered, Kept: s.kept}
}

// statements are texts. Arguments are in parentheses; results follow the arrow.
// Instants (from, to, start, chunk, end, ended, made, before, created) are bound by
// Dialect.Instant and read by Dialect.Into; scope, name, id, holder are texts; the others
// are integers.
type statements struct {
	// Rows of RL_WNDW_CT of an epoch that is over are as if they were not there.
	peek    statement // (scope, size, start) → SLOT_CT
	windows statement // (scope, size, from, to, limit) → WNDW_STRT_TS, SLOT_CT in order

	// gate holds a version of a config until the transaction ends, so that it is not
	// replaced; gateAll waits for those who do. Empty where transactions that write wait
	// for each other.
	gate    statement // (id) → ACT_IN of the version, unless lock returns it; no row if dialect.gateSilent
	gateAll statement // (id)
	// make inserts a window's row unless it is there, SLOT_CT counting the slots of the
	// scope that are scheduled inside. end is the window's. Where that statement cannot, remake
	// counts a row of an epoch that is over again, before it.
	make, remake statement // (scope, size, start, end)
	// (scope, size, start, max, id) → SLOT_CT if below max and of the epoch, ACT_IN of the version of
	// the config unless dialect.gateActive; locked, after waiting for a second at most
	lock statement

	// provision inserts the rows that are missing of the n windows from from on, as make
	// does, in ascending order and in one range scan. n is at most provisionRows. Its number
	// of changed rows is that of new windows.
	provision statement // (scope, size, from, n)
	// (scope, size, from, to) → number of the window, counted from from, and COUNT of the scope's slots
	// scheduled inside; in order, without those that have none
	scheduled   statement
	stale       statement // (scope, size, from, to) → WNDW_STRT_TS of rows of an epoch that is over
	dropStale   statement // (scope, size, start): the row, if its epoch is over
	bumpEpoch   statement // (scope, size): the next epoch begins
	addEpoch    statement // (scope, size): where there is no epoch yet, the first begins
	frontier    statement // (scope, size, chunk) → greatest WNDW_END_TS, NULL if none
	addFrontier statement // (scope, size, chunk, end): inserted unless it is there

	lockWait statement // (scope, size, start) → SLOT_CT; locked, after waiting
	count    statement // (scope, from, to) → COUNT of slots scheduled in [from, to)
	setCount statement // (count, scope, size, start)
	slotIn   statement // (scope) → a row if the scope has slots

	// Runs are stretches of windows that count max or more, [RUN_STRT_TS, RUN_END_TS).
	run statement // (scope, size, max, from) → RUN_END_TS of the last one that begins at from or before
	// (scope, size, max, from, to) → least RUN_STRT_TS and greatest RUN_END_TS of those that touch
	// [from, to), NULL if none
	overlaps    statement
	dropOverlap statement // (scope, size, max, from, to): those
	addRun      statement // (scope, size, max, from, to)
	dropRuns    statement // (scope, size)
	dropOldRuns statement // (before): those that begin before
	purgeRuns   statement // (ended): those that end before

	// Configs have the columns configColumns. Options are NULL or JSON.
	activeConfig  statement // (name) → config
	activeConfigs statement // (limit) → configs by name
	configByID    statement // (id) → config
	deactivate    statement // (name)
	insertConfig  statement // (id, name, max, size as ISO 8601, options): active, both times by the database's clock

	bump           statement // (): GEN_CT + 1 where CTL_NM is 'generation'
	generation     statement // () → GEN_CT
	lockGeneration statement // () → GEN_CT; locked
	control        statement // (name) → HOLDER_ID
	setScope       statement // (scope): HOLDER_ID where CTL_NM is 'scope', if it has none

	// (created, created, id, limit) → slots with CREAT_TS > created, or CREAT_TS = created and
	// WNDW_SLOT_ID > id; in that order; id may be empty
	since statement

	// (holder, ttl in ms, name, holder): the row of the name becomes the holder's until now + ttl if it
	// is his, nobody's, or no longer held
	lead      statement
	addLeader statement // (name): inserted, held by nobody, unless it is there

	clock statement // () → now

	purgeFrontiers statement // (ended, made, limit): REQ_TS + size <= ended, CREAT_TS < made
	// (ended, made, limit): WNDW_STRT_TS + size <= ended, CREAT_TS < made; waits for no other window's
	// lock
	purgeWindows statement
	purgeSlots   statement // (before, limit): CREAT_TS < before, COMPUTED_SCHED_TS < before

	dropFrontiers statement // (scope, size)

	// drift sees both figures as of one moment.
	// (scope, size, from, to, limit) → WNDW_STRT_TS, SLOT_CT, COUNT of the scope's slots scheduled
	// inside; in order
	drift statement
}

// provisionRows is how many windows one statement provisions at most. More are
// made by several, one after another.
const provisionRows = 1000

// slotColumns are what statements select of slots, in this order.
const slotColumns = "WNDW_SLOT_ID, EVENT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, " +
	"RL_WNDW_CONFIG_ID, CREAT_TS"

// schemaNumber is the version of the schema that this program knows, which it writes into its
// rows: older programs cannot.
const schemaNumber = "4"

// configColumns are what statements select of configs, in this order.
const configColumns = "RL_WNDW_CONFIG_ID, WNDW_CONFIG_NM, WNDW_MAX_EVENT_CT, WNDW_SIZE_ISO_DUR_TX, CONFIG_OPT_TX, " +
	"CONFIG_EFF_STRT_DT, ACT_IN, CREAT_TS"
