package slots

import (
	"context"
	"time"

	"github.com/headgate-rls/headgate/slots/plan"
)

// An Engine places events into windows. Results depend on the Search and on what
// is in the database, on nothing else: no clock, no randomness of its own.
type Engine interface {
	// Assign does the search. On an error the answers are those that were reached
	// before it; which of the others took effect is unknown until Find is asked.
	Assign(ctx context.Context, s *Search) (Found, error)
}

// A Search is for one or several events that want the same first window under
// one config.
//
// The order: events that have a slot keep it. Then the first window, up to each
// event's own capacity. Then the windows [FromMs, limit) as far as they are
// provisioned, the earliest with room first; then further chunks of Chunk windows
// are provisioned and searched, up to limit. A window that another holds is passed over.
// If windows were passed over they are tried once more before more are provisioned.
//
//	limit = max(BaseMs + Chunk windows, the frontier as it was) + Chunks × Chunk windows, but at most EndMs
type Search struct {
	Series
	ConfigID   string
	Max        int64 // places in a later window, > 0
	Stratified bool

	FirstMs    int64 // the first window
	FirstKnown bool  // its row is known to exist

	BaseMs int64 // the first of the later windows
	FromMs int64 // where to begin: BaseMs, or later if the windows before are known to be full
	Direct bool  // the window FromMs is thought to have room: lock it without scouting
	EndMs  int64 // later windows end here, whatever is in reach

	Chunk  int // windows that are provisioned at once, > 0
	Chunks int // chunks that are searched beyond what is provisioned, ≥ 0

	// FrontierMs is how far the windows of BaseMs's chunk are known to be
	// provisioned; zero if nothing is known.
	FrontierMs int64

	// Wait has the search end at the first window with room that another process
	// holds, with Found.Held, instead of passing it over.
	Wait bool
	// waitFrom is when waiting began; zero: not yet.
	waitFrom time.Time

	Asks []Ask // of different events
}

// An Ask is one event of a Search.
type Ask struct {
	EventID     string
	SlotID      string // for the slot, if it gets a new one
	RequestedUs int64
	ElapsedMs   int64  // of the first window, plan.Elapsed
	FirstMax    int64  // its capacity in the first window, plan.FirstCapacity; 0: not there
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

// Found is the outcome of a Search.
type Found struct {
	Answers []Answer // in the order of Asks

	// FirstCount is the highest count seen in the first window, -1 if it was not
	// looked at.
	FirstCount int64
	// LowMs: all windows in [FromMs, LowMs) were seen to be full. At least FromMs.
	LowMs int64
	// FrontierMs is how far windows are provisioned; zero if unknown.
	FrontierMs int64

	Held        bool // a window with room was held by another (see Search.Wait)
	Exhausted   bool // the limit was reached
	Windows     int  // windows that were tried
	Contended   int  // of these, held by another or filled meanwhile
	Provisioned int64
}

// waitUntil is when a search that waits for its turn in this process gives up;
// zero if it does not wait.
func (s *Search) waitUntil() time.Time {
	switch {
	case !s.Wait:
		return time.Time{}
	case s.waitFrom.IsZero():
		return time.Now().Add(heldLongest)
	}
	return s.waitFrom.Add(heldLongest)
}

// nothing is what a search has found when it begins.
func (s *Search) nothing() Found {
	return Found{Answers: make([]Answer, len(s.Asks)), FirstCount: -1, LowMs: s.FromMs, FrontierMs: s.FrontierMs}
}

// chunkMs is the length of a chunk.
func (s *Search) chunkMs() int64 { return int64(s.Chunk) * s.SizeMs }

// GridMs is the start of the chunk that BaseMs lies in, which its frontier
// is kept under.
func (s *Search) GridMs() int64 { return plan.ChunkStart(s.BaseMs, s.SizeMs, s.Chunk) }

// LimitMs is the end of the windows in reach if they are provisioned up to
// frontierMs (zero if they are not).
func (s *Search) LimitMs(frontierMs int64) int64 {
	reach := max(s.BaseMs+s.chunkMs(), frontierMs) + int64(s.Chunks)*s.chunkMs()
	return min(reach, s.EndMs)
}

// ScheduledMs is the time that the ask gets in a window with count events in it.
func (s *Search) ScheduledMs(a *Ask, windowMs, count int64) int64 {
	elapsed, capacity := int64(0), s.Max
	if windowMs == s.FirstMs {
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
