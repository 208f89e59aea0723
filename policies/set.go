package policies

import (
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A Set has the snapshot that is in force. It may be used from any goroutine. The zero Set has no
// policies.
type Set struct {
	// Keeps returns why the store of the counters cannot keep a limit. It is set before policies are read, or nil.
	Keeps Keeps
	// OnChange gets what changes of policies were put in force, in at most 20 lines, unless it is nil. The first
	// policies are no change.
	OnChange func(lines []string)

	snapshot atomic.Pointer[Snapshot]
	checked  atomic.Int64 // when the snapshot was known to be current, in µs; 0: never
	rejected atomic.Int64
}

// Snapshot returns the policies in force; nil if there are none yet. A caller that decides several
// questions together should take one snapshot for all of them.
func (s *Set) Snapshot() *Snapshot { return s.snapshot.Load() }

// Loaded reports whether policies have been read at all.
func (s *Set) Loaded() bool { return s.checked.Load() != 0 }

// Age returns for how long the snapshot has not been compared with the store; ok is false if
// nothing has been read.
func (s *Set) Age(now time.Time) (age time.Duration, ok bool) {
	us := s.checked.Load()
	return max(0, now.Sub(time.UnixMicro(us))), us != 0
}

// SetRejected notes how many rows of the store were no valid policies.
func (s *Set) SetRejected(n int64) { s.rejected.Store(n) }

// Rejected returns how many rows of the store were no valid policies when they were read last.
func (s *Set) Rejected() int64 { return s.rejected.Load() }

// Install puts a snapshot in force, which is the store's at an instant.
func (s *Set) Install(snapshot *Snapshot, at time.Time) {
	s.snapshot.Store(snapshot)
	s.Current(at)
}

// Current notes that the snapshot was the store's at an instant.
func (s *Set) Current(at time.Time) { s.checked.Store(at.UnixMicro()) }

// Keeps returns why a store of counters cannot keep a limit, or nil.
type Keeps func(*limit.Limit) error

// Check returns why policies with these figures would not be in force, or nil.
func (k Keeps) Check(f Figures) error {
	if k == nil {
		return nil
	}
	l, err := f.Limit()
	if err == nil {
		err = k(l)
	}
	return err
}
