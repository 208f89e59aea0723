package limit

import (
	"time"
)

// A State is what a store keeps under one key. The zero State is an unused
// key. What the fields mean depends on the algorithm, which is part of the
// key, so a state is only ever read by the algorithm that wrote it; the
// figures of its limit may have changed meanwhile, and any old state is
// acceptable.
//
//	               At                      N                         M
//	FixedWindow    start of a window       units taken in it         -
//	SlidingWindow  start of a window       units taken in it         in the one before
//	TokenBucket    instant of the level    level, in 1/den µs        num: one unit of N
//	SlidingLog     latest record           sum of the records        -
//
// A window that owes has more units taken than its limit allows. A bucket or log
// that owes has its instant and its records ahead of the op that wrote it, by the
// time in which that is paid back.
type State struct {
	At  Instant
	N   int64
	M   int64
	Log []Record // SlidingLog only, oldest first

	// Leases has all there is to know of a Concurrency limit, nil if it is
	// unused; the other fields are zero.
	Leases *LeaseSet
}

// A Record is one admission in a SlidingLog.
type Record struct {
	At Instant
	N  int64
}

// An Instant is a point in time in microseconds since the Unix epoch. Zero
// stands for "the store's own clock".
type Instant int64

// maxExact is the largest product that state and decisions may need.
const maxExact = 1 << 52

// MaxInstant (year 2112) is the last instant: beyond it, time stands still. It
// keeps sums of an instant and a window below 2^53.
const MaxInstant = Instant(maxExact)

// InstantOf returns t as an Instant, rounded down.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMicro()) }

// Time returns i as a time in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// Add returns i moved by the whole microseconds of d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Microseconds()) }

// AddUp returns i moved by d, which is rounded up to whole microseconds.
func (i Instant) AddUp(d time.Duration) Instant {
	return i + Instant(ceilDiv(int64(d), int64(time.Microsecond)))
}

// Sub returns how long after j i is.
func (i Instant) Sub(j Instant) time.Duration { return micros(int64(i - j)) }

func bounded(i Instant) Instant { return min(max(i, 0), MaxInstant) }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// Step decides op alone on state s at instant now. It returns the state with
// the op recorded, or s unchanged when the op took nothing, as one that is refused
// does unless its limit's [Overflow] says otherwise.
//
// It is total: any state, cost and instant give an answer, and negative
// figures in a state count as zero. Time does not run backwards for a key: an
// instant up to a window before the state's own (for a token bucket at most the
// time it needs to fill; at least MinAhead) counts as that one, and the waits
// in the outcome are still measured from now. A state that lies further ahead
// was written by a clock that has stepped back since: it moves to now, with
// what was taken, also when the op is refused or takes nothing.
//
// The returned state may share memory with s, which must not be used any more
// if the returned one is kept. A Concurrency limit's state changes in place.
func Step(s State, op *Op, now Instant) (State, Outcome) {
	now = bounded(now)
	if op.Limit.Is(Leased) {
		return stepConcurrency(s, op, now, true)
	}
	var out Outcome
	s.step(op, now, &out)
	return s, out
}

// Ends returns the instant from which s is as good as an unused key under l.
// A store may drop the state then, and must keep it until then.
func (l *Limit) Ends(s State) Instant {
	s.At = min(max(s.At, 0), MaxInstant)
	return l.row.ends(l, s)
}
