package slots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
)

// Settings of a Scheduler. The zero value of each is its default.
type Settings struct {
	DefaultConfig string // of requests that name none; "default"

	// Chunk is how many windows the background work provisions at once (100), Chunks how
	// many chunks beyond the one of now (2; -1 for none).
	Chunk, Chunks int

	// Procedure has single events placed inside the database, in one round trip.
	Procedure bool
	// Scope is how configs count whose options name no scope, where the database has not
	// decided that yet: ScopeConfig or ScopeShared. It is an error if the database
	// has decided otherwise. Empty: as the database has it; ScopeConfig in a new one.
	Scope string

	// MaxPast and MaxFuture bound the times that may be asked for; zero: any time
	// from 1900 to 9000.
	MaxPast, MaxFuture time.Duration

	// Timeout bounds a call whose context has no deadline, or a later one; 5 s.
	Timeout time.Duration
	// MaxWaiting bounds the callers that wait at once; 10,000.
	MaxWaiting int

	// Ahead is how far windows are provisioned before anybody asks, for those who read
	// the tables: no answer depends on it. Zero: as far as Chunks says where the schema
	// was made by another program, and not at all elsewhere.
	Ahead time.Duration
	// KeepWindows is how long windows are kept after their end (7 days), KeepSlots
	// how long slots are kept after both their assignment and their time; zero
	// keeps them for ever. When a slot is dropped, its event may get another one.
	KeepWindows, KeepSlots time.Duration

	Log     *slog.Logger
	Metrics *Metrics

	// Turn waits until a search may compute, for a store that computes in this process. Nil: at once.
	Turn func(context.Context) (done func())

	Now   func() time.Time // for bounds, caches and retention, never for slots
	NewID func() string    // of slots and configs; random UUIDs
	Bits  func() uint32    // 31 random bits
}

// Defaults of settings.
const (
	DefaultConfigName  = "default"
	DefaultChunk       = 100
	DefaultChunks      = 2
	DefaultTimeout     = 5 * time.Second
	DefaultKeepWindows = 7 * 24 * time.Hour
)

// Bounds of settings.
const (
	MaxChunk  = 10_000
	MaxChunks = 100
)

// minTime and maxTime bound the times that may be asked for.
var minTime, maxTime = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

// lastMs is the end of all windows.
var lastMs = maxTime.UnixMilli()

func (s *Settings) setDefaults() {
	s.DefaultConfig = cmp.Or(s.DefaultConfig, DefaultConfigName)
	s.Chunk = cmp.Or(s.Chunk, DefaultChunk)
	s.Chunks = max(cmp.Or(s.Chunks, DefaultChunks), 0)
	s.Timeout = cmp.Or(s.Timeout, DefaultTimeout)
	s.MaxWaiting = cmp.Or(s.MaxWaiting, 10_000)
	s.KeepWindows = cmp.Or(s.KeepWindows, DefaultKeepWindows)
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	s.Metrics = cmp.Or(s.Metrics, NewMetrics())
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.NewID == nil {
		// Version 7 grows with time, which keeps indexes compact.
		s.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	if s.Bits == nil {
		s.Bits = func() uint32 { return rand.Uint32() >> 1 }
	}
}

func (s *Settings) check(store Store) error {
	switch {
	case s.Chunk < 1 || s.Chunk > MaxChunk:
		return fmt.Errorf("slots: %d windows in a chunk: want 1 to %d", s.Chunk, MaxChunk)
	case s.Chunks > MaxChunks:
		return fmt.Errorf("slots: %d chunks to search: want 0 to %d", s.Chunks, MaxChunks)
	case s.Procedure && store.Procedure() == nil:
		return errors.New("slots: this database has no procedure for slots; use the tx engine")
	case s.Scope != "" && s.Scope != ScopeConfig && s.Scope != ScopeShared:
		return fmt.Errorf("slots: unknown scope %q: want %s or %s", s.Scope, ScopeConfig, ScopeShared)
	case s.KeepSlots < 0 || s.KeepWindows < 0 || s.Ahead < 0 || s.MaxPast < 0 || s.MaxFuture < 0 || s.Timeout < 0:
		return errors.New("slots: a time in the settings is negative")
	case s.KeepSlots > 0 && s.KeepSlots < s.KeepWindows:
		return fmt.Errorf("slots: slots are kept for %v and their windows for %v: slots must be kept at least as long, "+
			"since windows count them", s.KeepSlots, s.KeepWindows)
	}
	return nil
}
