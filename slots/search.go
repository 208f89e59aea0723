package slots

import (
	"context"

	"github.com/headgate-rls/headgate/slots/plan"
)

// An Engine places events into windows. Results depend on the Search and on what
// is in the database, on nothing else: no clock, no randomness of its own.
type Engine interface {
	// Assign does the search. On an error the answers are those that were reached
	// before it; which of the others took effect is unknown until Find is asked.
	Assign(ctx context.Context, s *Search) (Found, error)
}

// A Search is for one or several events under one version of a config.
//
// The order: events that have a slot keep it. Then the first window, up to each
// event's own capacity. Then the later windows before EndMs, the earliest with room
// first. A window without a row is empty. A window that another transaction holds is
// waited for; one that is held for too long is passed over.
type Search struct {
	Series
	ConfigID   string
	Max        int64 // places in a later window, > 0
	Stratified bool

	FirstMs   int64 // the first window
	FirstOnly bool  // look at no later window

	FromMs int64 // where to begin: the first of the later windows, or one behind windows that are known to be full
	Direct bool  // the window FromMs is thought to have room: lock it without scouting
	EndMs  int64 // later windows end here

	// Mixed: each ask has a FromMs and an EndMs of its own, and the search's are the earliest and the latest.
	Mixed bool

	// Held are windows whose locks other transactions hold. The asks have waited for these locks, so the search skips
	// the windows.
	Held []int64

	Asks []Ask // of different events
}

// An Ask is one event of a Search.
type Ask struct {
	EventID     string
	SlotID      string // for the slot, if it gets a new one
	RequestedUs int64
	ElapsedMs   int64  // of the first window, plan.Elapsed
	FirstMax    int64  // its capacity in the first window, plan.FirstCapacity; 0: not there
	FromMs      int64  // if the search is Mixed
	EndMs       int64  // likewise: its windows end here
	Bits        uint32 // 31 random bits, for the place inside the window
}

// Status says what became of an Ask.
type Status int

// The statuses. Procedures return them as numbers.
const (
	Unplaced Status = iota // no window for it
	New                    // it got a slot
	Existing               // it had one
)

// An Answer is what an Ask got.
type Answer struct {
	Status Status
	Slot   Slot // unless Unplaced
}

// A Span is a stretch of windows: those that start in [FromMs, ToMs).
type Span struct{ FromMs, ToMs int64 }

// Found is the outcome of a Search.
type Found struct {
	Answers []Answer // in the order of Asks

	// FirstCount: the first window counts at least that many, -1 if nothing was seen.
	FirstCount int64
	// Full are later windows that were seen to be full.
	Full []Span
	// Held are windows whose lock wait timed out.
	Held []int64

	Exhausted bool // there was no later window with room before EndMs
	Windows   int  // windows that were tried
	Contended int  // of these, held by others for too long, or filled meanwhile
}

// from is where the later windows of an ask begin.
func (s *Search) from(a *Ask) int64 {
	if s.Mixed {
		return a.FromMs
	}
	return s.FromMs
}

// ScheduledMs is the time that the ask gets in a window with count events in it.
func (s *Search) ScheduledMs(a *Ask, windowMs, count int64) int64 {
	elapsed, capacity := int64(0), s.Max
	if windowMs == s.FirstMs && !s.Mixed {
		elapsed, capacity = a.ElapsedMs, a.FirstMax
	}
	if s.Stratified {
		return windowMs + plan.Stratum(a.Bits, count, capacity, s.Max, elapsed, s.SizeMs)
	}
	return windowMs + plan.Draw(a.Bits, elapsed, s.SizeMs)
}

// slot is the slot that the ask gets in a window with count events in it.
func (s *Search) slot(a *Ask, windowMs, count int64) Slot {
	return Slot{
		ID: a.SlotID, EventID: a.EventID, Series: s.Series, RequestedUs: a.RequestedUs,
		WindowMs: windowMs, ScheduledMs: s.ScheduledMs(a, windowMs, count), ConfigID: s.ConfigID,
	}
}
