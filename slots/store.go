package slots

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Tables are the statements that the tx engine and the Scheduler make use of.
// Each method but Begin is a transaction of its own. All of them may be called
// from any goroutine and end when ctx does. Errors are of the kinds below.
//
// All of it runs at READ COMMITTED, or serially: a statement sees what was
// committed before it began.
type Tables interface {
	// Find returns the slots of those of the events that have one, in any order.
	// One statement for at most MaxBatch events.
	Find(ctx context.Context, eventIDs []string) ([]Slot, error)

	// Peek returns the count of a window, or ok=false if it has no row. It locks
	// nothing.
	Peek(ctx context.Context, s Series, windowMs int64) (count int64, ok bool, err error)

	// Scout returns the earliest window in [fromMs, toMs), both on the grid, that has
	// no row or a count below max. It locks nothing, and reads what NoteFull has noted
	// instead of the rows.
	Scout(ctx context.Context, s Series, fromMs, toMs, max int64) (windowMs int64, ok bool, err error)

	// Uncounted returns the end of the full windows that have no row and begin at fromMs, which
	// is on the grid: in each of them max slots of the scope or more are scheduled. It is fromMs
	// if the first window has a row, or room, and toMs at most. It locks nothing.
	Uncounted(ctx context.Context, s Series, fromMs, toMs, max int64) (endMs int64, err error)

	// Provision makes the rows that are missing among the windows
	// [fromMs, toMs), as Tx.Lock makes one, and returns how many it made. One statement, in
	// ascending order. A frontier, unless nil, is added after it, unless it is there.
	Provision(ctx context.Context, s Series, fromMs, toMs int64, frontier *Frontier) (rows int64, err error)

	// Place claims places in one window for all of the slots, as Lock, Claim and Commit of a
	// transaction of Begin do, in one round trip. ok=false: it has changed nothing. There is no
	// room for all of them below max, or another reason, or the store cannot do it; then call Lock,
	// which says why. Errors are those of the transaction's methods.
	Place(ctx context.Context, configID string, s Series, windowMs, max int64, slots []Slot) (count int64,
		ok bool, err error)

	// Begin starts a transaction for claims under a version of a config, which may be
	// empty. Until the transaction ends that version is not replaced.
	Begin(ctx context.Context, configID string) (Tx, error)

	// BeginActive starts a transaction for claims under the active version of a name, which it
	// returns: until the transaction ends no other replaces it. Error: ErrConfigNotFound.
	BeginActive(ctx context.Context, name string) (Tx, Config, error)
}

// A Frontier says that windows are provisioned up to EndMs for the chunk of
// windows that starts at ChunkMs.
type Frontier struct{ ChunkMs, EndMs int64 }

// Tx is a transaction that claims places in one window. It ends with Commit or
// Rollback; Rollback after Commit does nothing. An error of any method means that
// the transaction must be rolled back.
type Tx interface {
	// Lock locks the window's row for the rest of the transaction, if its count is below
	// max. It makes the row if there is none, counting the slots of the scope that are
	// scheduled inside the window already, whatever the size of the windows that they were
	// assigned under. It waits while another transaction holds the row; if that takes
	// a second or longer the error is of kind Held. It is of kind Superseded if the
	// version of the config is not the active one. ok=false: the window is full, and may be
	// locked until the transaction ends.
	Lock(ctx context.Context, s Series, windowMs, max int64) (count int64, ok bool, err error)

	// Claim inserts the slots, all of this window, and then adds their number to its
	// count. A slot of an event that has one already is an error of kind Duplicate, or
	// Passing if its id is that slot's.
	Claim(ctx context.Context, s Series, windowMs int64, slots []Slot) error

	// Commit ends the transaction. After an error it is unknown whether it took
	// effect.
	Commit(ctx context.Context) error
	Rollback()
}

// A ClaimCommitter is a Tx that can do Claim and then Commit in one round trip.
type ClaimCommitter interface {
	// ClaimCommit commits if nothing of the claim fails. Errors are those of Claim and
	// of Commit.
	ClaimCommit(ctx context.Context, s Series, windowMs int64, slots []Slot) error
}

// Procedure does one whole search inside the database, in one round trip and
// with the same results as the tx engine.
type Procedure interface {
	// Call places the one event of s.Asks.
	Call(ctx context.Context, s *Search) (Found, error)
}

// Store is everything that a Scheduler needs of a database.
type Store interface {
	Tables

	// Procedure is nil if the database has none.
	Procedure() Procedure

	// ActiveConfig returns the active version of a name, or ErrConfigNotFound.
	ActiveConfig(ctx context.Context, name string) (Config, error)
	// ActiveConfigs returns all active versions by name, at most limit. With an *UnreadableError it returns the others.
	ActiveConfigs(ctx context.Context, limit int) ([]Config, error)
	// PutConfig makes c the active version of its name and deactivates the one that
	// was, in one transaction that also adds to the generation. It sets SinceUs and
	// CreatedUs by the database's clock. Several at once succeed one after another. When
	// it returns, no transaction that has begun under the version before is under way; it waits
	// for them until ctx ends: ErrClaimUnderWay. Claims that begin meanwhile wait for some tens
	// of milliseconds at a time.
	//
	// If c counts in another series than the version before, the windows of the new series
	// have no rows any more; each is counted again when it is claimed.
	// The scope cannot change while the one before has slots: ErrScopeInUse. seriesOf returns where a
	// config counts.
	PutConfig(ctx context.Context, c Config, seriesOf func(Config) Series) (Config, error)

	// Generation is a number that every change of a config, and Flush, adds to.
	Generation(ctx context.Context) (int64, error)
	Flush(ctx context.Context) (generation int64, err error)

	// NoteFull notes that all windows of the span count max or more, unless the
	// generation is another than the given one. It is a hint for Scout.
	NoteFull(ctx context.Context, s Series, max int64, full Span, generation int64) error

	// Scope returns how configs count, ScopeConfig or ScopeShared. Where that is not
	// decided yet, it is from then on: by want or, if that is empty, ScopeConfig.
	Scope(ctx context.Context, want string) (string, error)
	// Adopted reports whether another program made the schema, as documented.
	Adopted(ctx context.Context) (bool, error)

	// Frontier returns the end of the windows that are provisioned for the chunk
	// that starts at chunkMs, or ok=false if none are.
	Frontier(ctx context.Context, s Series, chunkMs int64) (endMs int64, ok bool, err error)
	// SlotsSince returns slots in the order of (CreatedUs, ID), from those after
	// the position on.
	SlotsSince(ctx context.Context, after Position, limit int) ([]Slot, error)
	// Windows returns the counters in [fromMs, toMs), in order, at most limit.
	Windows(ctx context.Context, s Series, fromMs, toMs int64, limit int) ([]Window, error)
	// Scheduled counts the slots of the scope by the windows in [fromMs, toMs) that they are
	// scheduled inside, in order; windows that have none are left out.
	Scheduled(ctx context.Context, s Series, fromMs, toMs int64) ([]Window, error)

	// Lead makes holder the only leader of the named work for the time ttl, or
	// renews it, and reports whether it is.
	Lead(ctx context.Context, work, holder string, ttl time.Duration) (bool, error)
	// Now returns the database's clock, in microseconds since the epoch.
	Now(ctx context.Context) (us int64, err error)
	// PurgeWindows drops windows, and frontiers of chunks whose first window, ended
	// before the one instant and were made before the other: windows that were made
	// today are kept, however long past they are. PurgeSlots drops slots that were both created
	// and scheduled before the instant. Both drop at most limit rows of each table and
	// return how many.
	PurgeWindows(ctx context.Context, endedMs, madeUs int64, limit int) (int64, error)
	PurgeSlots(ctx context.Context, beforeUs int64, limit int) (int64, error)
	// Drift compares counters of windows that start in [fromMs, toMs), of all
	// series that active configs use, with the slots scheduled inside them, and with repair
	// sets those that differ, each in a transaction that holds the window. At most
	// limit windows are looked at, in the order of (scope, size, start) from those after
	// the given one on; next is nil at the end.
	Drift(ctx context.Context, fromMs, toMs int64, after *WindowKey, limit int, repair bool) (drifts []Drift,
		next *WindowKey, err error)

	// Pool returns figures of the connections.
	Pool() PoolStats

	// Migrate brings the schema up to date; several at once succeed.
	Migrate(ctx context.Context) (applied []string, err error)
	// Ping reports whether an Assign could succeed now: that the database answers,
	// has the schema, and takes writes.
	Ping(ctx context.Context) error
	Close() error
}

// Position is a place in the order of SlotsSince. ID may be empty.
type Position struct {
	CreatedUs int64
	ID        string
}

// A WindowKey names a window.
type WindowKey struct {
	Series
	StartMs int64
}

// A Drift is a window whose counter differs from its slots.
type Drift struct {
	WindowKey
	Count    int64 // the counter
	Slots    int64 // scheduled inside
	Repaired bool
}

// PoolStats describe the connections to a database.
type PoolStats struct {
	Max, Open, InUse int
	Waits            int64         // for a connection, since the start
	Waited           time.Duration // all of them together
}

// Kind says what became of something that failed in the database, and so what
// can be done about it.
type Kind int

// The kinds of StoreError.
const (
	// Failed: a retry will not help; an operator must act.
	Failed Kind = iota
	// Passing: a deadlock, a lost connection, a failover; the transaction may or may not
	// have taken effect. Retry.
	Passing
	// Duplicate: the event has a slot already, or is about to get one.
	Duplicate
	// Held: another transaction held the lock for too long.
	Held
	// Superseded: the version of the config is not the active one any more.
	Superseded
	// Unavailable: the database cannot be reached, or has no connection to spare.
	Unavailable
)

func (k Kind) String() string {
	return [...]string{"failed", "passing", "duplicate", "held", "superseded", "unavailable"}[k]
}

// A StoreError is what a Store's methods return. Its text never holds a
// password.
type StoreError struct {
	Kind Kind
	Op   string // what was being done, such as "lock a window"
	Err  error
}

func (e *StoreError) Error() string { return e.Op + ": " + e.Err.Error() }
func (e *StoreError) Unwrap() error { return e.Err }

// An UnreadableError says which configs cannot be read, as after a change by hand: one or more.
type UnreadableError struct{ Configs []UnreadableConfig }

// An UnreadableConfig is the row of a config, and what is wrong with it.
type UnreadableConfig struct {
	ID, Name string
	Err      error
}

func (e *UnreadableError) Error() string {
	text := fmt.Sprintf("config %q: %v", e.Configs[0].Name, e.Configs[0].Err)
	if more := len(e.Configs) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more configs cannot be read)", more)
	}
	return text
}

// KindOf returns the kind of a Store's error; Failed for other errors.
func KindOf(err error) Kind {
	if se, ok := errors.AsType[*StoreError](err); ok {
		return se.Kind
	}
	return Failed
}

// What a Scheduler's callers may see, beside StoreErrors and context errors.
var (
	// ErrConfigNotFound: there is no active config of the name.
	ErrConfigNotFound = errors.New("no active config of this name")
	// ErrExhausted: no window that is open from the requested time on has room.
	ErrExhausted = errors.New("no window in reach has room")
	// ErrScopeInUse: the config has slots in the scope that it would leave.
	ErrScopeInUse = errors.New("the config has slots in its scope, which another scope would not count: " +
		"give the other scope to a config of another name")
	// ErrClaimUnderWay: a change of a config waits for a claim that does not end.
	ErrClaimUnderWay = errors.New("a transaction that assigns slots under the version before does not end: " +
		"look for a process that is frozen, and in the database for a session that is idle in a transaction")
	// ErrPaused: the config allows no events at present (its maximum is 0).
	ErrPaused = errors.New("the config is paused: its maximum is 0")
)
