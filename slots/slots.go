package slots

import (
	"time"

	"github.com/headgate-rls/headgate/slots/plan"
)

// Bounds of what callers may send, which are those of the documented columns.
const (
	MaxEventID    = 50  // bytes of UTF-8
	MaxConfigName = 128 // bytes of UTF-8
	MaxBatch      = 1000
)

// SharedScope is the scope of counters that all configs share, as the documented
// schema had them.
const SharedScope = "*"

// How configs count whose options name no scope: each in windows of its own, or all
// of them in SharedScope.
const (
	ScopeConfig = "config"
	ScopeShared = "shared"
)

// Series are the windows of one size that share counters with each other and
// with no others.
type Series struct {
	Scope  string
	SizeMs int64
}

// A Slot is the time that an event has.
type Slot struct {
	ID          string // of the slot, chosen by who assigned it
	EventID     string
	Series             // of the window
	RequestedUs int64  // what was asked for
	WindowMs    int64  // start of the window
	ScheduledMs int64  // in [WindowMs, WindowMs+SizeMs), never before RequestedUs
	ConfigID    string // version of the config that was in force
	CreatedUs   int64  // by the database's clock; zero in a slot that was just made
}

// Scheduled is the time of the slot.
func (s Slot) Scheduled() time.Time { return time.UnixMilli(s.ScheduledMs).UTC() }

// Requested is the time that was asked for.
func (s Slot) Requested() time.Time { return time.UnixMicro(s.RequestedUs).UTC() }

// Delay is how much later than asked for the slot is, in whole milliseconds,
// rounded down; never negative.
func (s Slot) Delay() time.Duration {
	return time.Duration((s.ScheduledMs*1000-s.RequestedUs)/1000) * time.Millisecond
}

// A Config is one version of a named limit. Versions are kept for ever; one of a
// name is active.
type Config struct {
	ID        string
	Name      string
	Max       int64 // events per window; 0 pauses
	SizeMs    int64
	Options   Options
	SinceUs   int64 // since when it is in force, by the database's clock
	Active    bool
	CreatedUs int64
}

// Options of a config beyond the documented ones. The zero value is the
// documented behaviour.
type Options struct {
	// Scope names the counters that the config uses; configs with the same scope
	// and size share them. Empty: the Scheduler's rule (its own, or shared by all).
	Scope string
	// Stratified spreads the events of a window over equal parts of it, one each,
	// instead of anywhere at random, which bounds bursts.
	Stratified bool
	// MaxDelayMs is how long after the requested time a slot may be, at least the size of a window; zero: no bound.
	// An event that no window in reach has room for gets a *DelayError.
	MaxDelayMs int64
	// Calendar has the windows that are open; nil: all.
	Calendar *plan.Calendar
}

// A Window is a counter, for looking at.
type Window struct {
	StartMs int64
	Count   int64
}
