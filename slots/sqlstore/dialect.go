package sqlstore

import (
	"context"
	"database/sql"

	"github.com/headgate-rls/headgate/slots"
)

// A dialect is everything that differs between databases, as data and a few
// functions. Outside the files of the dialects nothing names one.
type dialect struct {
	name    string   // for people, and of the folder of its migrations
	schemes []string // of its URLs, without "jdbc:"

	// parse checks a URL, whose prefix "jdbc:" is gone, and gives it the Config's
	// user name and password. It does not connect. Errors hold no password.
	parse func(url string, c Config) (*source, error)

	// instant is how an instant, in microseconds, is bound; micros reads what the
	// driver gives for one. Neither depends on a session's time zone.
	instant func(us int64) any
	micros  func(src any) (us int64, err error)

	// find selects the slots of events, in the columns slotColumns.
	find func(eventIDs []string) query
	// claim is what Tx.Claim runs, in this order: it inserts the slots, CREAT_TS by the
	// database's clock, and adds their number to the window's count. The last query must
	// change one row, the window's; the others as many as their slots are.
	claim func(s slots.Series, windowMs int64, claimed []slots.Slot) []query

	// pipeline sends the statements of a transaction in two round trips; nil: each
	// takes its own.
	pipeline *pipeline

	// boundedWait, if there is one, has the statements of a transaction that follow wait for
	// locks for a second at most.
	boundedWait string

	statements statements
	migrations migrations

	// assign calls the procedure for the one event of a search, or is nil if there
	// is none.
	assign func(ctx context.Context, db *sql.DB, s *slots.Search) (*assigned, error)

	// purgeWindows does what statements.purgeWindows does where one statement cannot,
	// or is nil.
	purgeWindows func(ctx context.Context, db *DB, ended, made any, limit int) (int64, error)

	// classify says what an error of the driver means. Context errors never come
	// here.
	classify func(err error) failure
}

// A query is a text and what its placeholders stand for.
type query struct {
	text string
	args []any
	rows int64 // how many rows it must change, if that is checked
}

// A source is a database to connect to.
type source struct {
	shown string // for people: without a password
	open  func() (pools, error)
}

// pools are connections. They are the same one unless reading and writing want
// different connections.
type pools struct {
	read, write *sql.DB
	release     func() error // what else is to be closed, or nil
}

// A failure is what an error of a driver means.
type failure struct {
	kind  slots.Kind
	index string // the constraint or index that a duplicate key is of, as far as it is known
	// stale: other idle connections are of no use either, as after a failover.
	stale bool
}

// A statement is a text with placeholders and which arguments they stand for, as
// positions in the list that its field in statements documents; nil: that list.
type statement struct {
	text  string
	order []int
}

// text makes a statement whose placeholders are the documented arguments, each
// once, unless order says otherwise.
func text(sql string, order ...int) statement { return statement{sql, order} }

// with fills in the arguments.
func (s statement) with(args ...any) query {
	if s.order == nil {
		return query{text: s.text, args: args}
	}
	ordered := make([]any, len(s.order))
	for i, at := range s.order {
		ordered[i] = args[at]
	}
	return query{text: s.text, args: ordered}
}

// statements are texts. Arguments are in parentheses; results follow the arrow.
// Instants (from, to, start, chunk, end, ended, made, before, created) are bound by
// dialect.instant and read by dialect.micros; scope, name, id, holder are texts; the others
// are integers.
type statements struct {
	peek    statement // (scope, size, start) → SLOT_CT
	windows statement // (scope, size, from, to, limit) → WNDW_STRT_TS, SLOT_CT in order

	// gate holds a version of a config until the transaction ends, so that it is not
	// replaced; gateAll waits for those who do. Empty where transactions that write wait
	// for each other.
	gate, gateAll statement // (id)
	// make inserts a window's row unless it is there, SLOT_CT counting the slots of the
	// scope that are scheduled inside. end is the window's.
	make statement // (scope, size, start, end)
	lock statement // (scope, size, start, max, id) → SLOT_CT if below max, ACT_IN of the version of the config; locked, after waiting for a second at most

	// provision inserts the rows that are missing of the n windows from from on, as make
	// does, in ascending order and in one range scan. n is at most provisionRows. Its number
	// of changed rows is that of new windows.
	provision   statement // (scope, size, from, n)
	recount     statement // (scope, size, from): inserts the rows of all windows from from on that slots are scheduled inside
	frontier    statement // (scope, size, chunk) → greatest WNDW_END_TS, NULL if none
	addFrontier statement // (scope, size, chunk, end): inserted unless it is there

	lockWait statement // (scope, size, start) → SLOT_CT; locked, after waiting
	count    statement // (scope, from, to) → COUNT of slots scheduled in [from, to)
	setCount statement // (count, scope, size, start)
	slotIn   statement // (scope) → a row if the scope has slots

	// Runs are stretches of windows that count max or more, [RUN_STRT_TS, RUN_END_TS).
	run         statement // (scope, size, max, from) → RUN_END_TS of the last one that begins at from or before
	overlaps    statement // (scope, size, max, from, to) → least RUN_STRT_TS and greatest RUN_END_TS of those that touch [from, to), NULL if none
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

	since statement // (created, created, id, limit) → slots with CREAT_TS > created, or CREAT_TS = created and WNDW_SLOT_ID > id; in that order; id may be empty

	lead      statement // (holder, ttl in ms, name, holder): the row of the name becomes the holder's until now + ttl if it is his, nobody's, or no longer held
	addLeader statement // (name): inserted, held by nobody, unless it is there

	purgeFrontiers statement // (ended, made, limit): REQ_TS + size <= ended, CREAT_TS < made
	purgeWindows   statement // (ended, made, limit): WNDW_STRT_TS + size <= ended, CREAT_TS < made; waits for no other window's lock. Not used if there is dialect.purgeWindows
	purgeSlots     statement // (before, limit): CREAT_TS < before, COMPUTED_SCHED_TS < before

	dropWindows   statement // (scope, size): all of them
	dropFrontiers statement // (scope, size)

	// drift sees both figures as of one moment.
	drift statement // (scope, size, from, to, limit) → WNDW_STRT_TS, SLOT_CT, COUNT of the scope's slots scheduled inside; in order
}

// provisionRows is how many windows one statement provisions at most. More are
// made by several, one after another.
const provisionRows = 1000

// slotColumns are what statements select of slots, in this order.
const slotColumns = "WNDW_SLOT_ID, EVENT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS"

// configColumns are what statements select of configs, in this order.
const configColumns = "RL_WNDW_CONFIG_ID, WNDW_CONFIG_NM, WNDW_MAX_EVENT_CT, WNDW_SIZE_ISO_DUR_TX, CONFIG_OPT_TX, CONFIG_EFF_STRT_DT, ACT_IN, CREAT_TS"

// migrations is how a schema is brought up to date.
type migrations struct {
	// begin waits until nobody else migrates, and returns where to run statements.
	// finish ends that; with nil it keeps what was done.
	begin func(ctx context.Context, db *sql.DB) (s session, finish func(error) error, err error)
	// values are what ${NAME} in files stands for.
	values func(ctx context.Context, s session) (map[string]string, error)
	// printed are values for printing without a database, for one of the schemes; nil
	// if there are none.
	printed func(scheme string) map[string]string
	// Printed, every statement ends with printEnd; printHead comes first and printTail
	// last.
	printHead, printEnd, printTail string

	hasFlyway     statement // () → a row if the current schema has the table flyway_schema_history
	flywayApplied statement // () → a row if flyway_schema_history has version 1 as applied; run only if that table exists
	createHistory statement // (): RL_SCHEMA_HISTORY(SCRIPT_NM key, CHECKSUM_TX of 64, APPLIED_TS); it is there already or present tells
	history       statement // () → SCRIPT_NM, CHECKSUM_TX
	addHistory    statement // (SCRIPT_NM, CHECKSUM_TX): also APPLIED_TS by the database's clock
	dropHistory   statement // (SCRIPT_NM)

	// present tells whether an error of a statement means that its work was done
	// before, where statements cannot say IF NOT EXISTS and are no transaction.
	present func(text string, err error) bool
	// check looks for mistakes that the database reports only when asked, after a
	// file was run; nil if there are none.
	check func(ctx context.Context, s session) error
}

// A session is one connection, or a transaction on one.
type session interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}

// assigned is what a procedure answers. Instants are as micros reads them, but
// as integers here.
type assigned struct {
	status slots.Status
	slot   slots.Slot // unless Unplaced

	firstCount, lowMs  int64
	exhausted          bool
	windows, contended int64
}

// dialects are all that there are.
func dialects() []*dialect {
	return []*dialect{sqliteDialect(), postgresDialect(), mysqlDialect(), oracleDialect()}
}
