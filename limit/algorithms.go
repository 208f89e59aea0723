package limit

import "fmt"

// To add an algorithm, add a constant, a row and two cases here, and a file
// step_*.go with what they name. CONTRIBUTING.md lists what else knows algorithms.

// Algorithm names how requests are counted against a limit.
type Algorithm uint8

// The algorithms. The zero Algorithm is not one.
const (
	// FixedWindow counts in windows aligned to the Unix epoch, as
	// github.com/envoyproxy/ratelimit does. Around a boundary up to twice the
	// limit can pass within one window's length.
	FixedWindow Algorithm = iota + 1
	// SlidingLog remembers every admission: no half-open interval (t-W, t]
	// ever holds more than the limit. State grows with the limit.
	SlidingLog
	// SlidingWindow weights the previous fixed window's count by how much of
	// it the sliding window still covers. Constant state, approximate.
	SlidingWindow
	// TokenBucket refills continuously at Max per Window up to Burst.
	TokenBucket
	// Concurrency counts requests in flight: each takes a lease, and gives it
	// back at its end. A lease that is not given back expires after Window.
	Concurrency

	numAlgorithms = iota + 1
)

// A row is what this package knows of one algorithm, beside how it steps. The
// table of them is in algorithms.go.
type row struct {
	name   string // in rules
	letter string // see Algorithm.KeyLetter
	traits Trait
	most   int64 // bounds Spec.Max

	// prepare computes what decisions need, beyond what all limits have. Nil
	// computes nothing.
	prepare func(l *Limit) error
	// moveTo returns s as it is moved to now: see clock.go. Nil leaves s alone.
	moveTo func(l *Limit, s State, now Instant) State
	// ends is [Limit.Ends] for a state whose instant is in bounds.
	ends func(l *Limit, s State) Instant
	// figures is [Limit.Figures]. Nil means two zeros.
	figures func(l *Limit) (x, y int64)
}

// algorithms has one row for each algorithm.
var algorithms = [numAlgorithms]row{
	FixedWindow: {
		name: "fixed_window", letter: "f", most: MaxUnits,
		traits: Aligned | Windowed | Isolated | Prefetched,
		moveTo: moveWindow, ends: endsFixedWindow,
	},
	SlidingLog: {
		name: "sliding_log", letter: "l", most: MaxUnits,
		traits:  Logged | Prefetched,
		figures: (*Limit).Interval,
		moveTo:  moveLog, ends: endsLog,
	},
	SlidingWindow: {
		name: "sliding_window", letter: "w", most: MaxSlidingWindowUnits,
		traits:  Aligned | Windowed | Prefetched,
		prepare: prepareGrid, figures: (*Limit).Grid,
		moveTo: moveWindow, ends: endsSlidingWindow,
	},
	TokenBucket: {
		name: "token_bucket", letter: "t", most: MaxUnits,
		traits:  Refilled | Prefetched,
		prepare: prepareBucket, figures: (*Limit).Interval,
		moveTo: moveBucket, ends: endsBucket,
	},
	Concurrency: {
		name: "concurrency", letter: "c", most: MaxInFlight,
		traits:  Leased,
		prepare: prepareHold, figures: holdFigures,
		ends: endsLeases,
	},
}

// step is Step in place, for limits that count units per time. It and what it calls
// fill in an outcome that is zero.
func (s *State) step(op *Op, now Instant, out *Outcome) {
	if op.Cost < 0 && op.Limit.owe > 0 {
		s.stepRefund(op, now, out)
		return
	}
	s.stepStrict(op.Limit, op.Cost, now, out)
	if !out.Admitted && op.Overflows() {
		if taken := s.overflow(op, now); taken > 0 {
			*out = Outcome{}
			s.stepStrict(op.Limit, op.Cost, now, out) // has no room now either
			out.Taken = taken
		}
	}
}

// stepRefund is step for an op that gives back where something may be owed.
func (s *State) stepRefund(op *Op, now Instant, out *Outcome) {
	s.stepStrict(op.Limit, s.payBack(op, now), now, out)
	out.Admitted = true
}

// stepStrict is step without overflow. It is a switch and not a column of the
// table: behind a function value each State would be copied or escape to the
// heap, which takes 20 ns.
func (s *State) stepStrict(l *Limit, cost int64, now Instant, out *Outcome) {
	at := now
	if s.At > now {
		s.moveTo(now, l)
		at = max(now, min(s.At, MaxInstant))
	}
	switch l.spec.Algorithm {
	case FixedWindow:
		stepFixedWindow(l, s, cost, at, out)
	case SlidingLog:
		stepSlidingLog(l, s, cost, at, out)
	case SlidingWindow:
		stepSlidingWindow(l, s, cost, at, out)
	case TokenBucket:
		stepTokenBucket(l, s, cost, at, out)
	}
	if at > now {
		out.delay(micros(int64(at - now)))
	}
}

// overflow takes the units that op takes although it has no room, and returns how many
// that is. It is a switch for the same reason.
func (s *State) overflow(op *Op, now Instant) (taken int64) {
	l, at := op.Limit, max(now, min(s.At, MaxInstant))
	switch l.spec.Algorithm {
	case FixedWindow:
		return overflowFixedWindow(l, s, op.Cost, at)
	case SlidingLog:
		return overflowLog(l, s, op.Cost, at, int64(at-now))
	case SlidingWindow:
		return overflowSlidingWindow(l, s, op.Cost, at)
	case TokenBucket:
		return overflowBucket(l, s, op.Cost, at, int64(at-now))
	}
	return 0
}

// AllAlgorithms returns all algorithms, in the order of their values.
func AllAlgorithms() []Algorithm {
	var all []Algorithm
	for a := FixedWindow; a < numAlgorithms; a++ {
		all = append(all, a)
	}
	return all
}

// Algorithms returns the algorithms that count units per time, in the order of
// their values: all but those that are [Leased].
func Algorithms() []Algorithm {
	var timed []Algorithm
	for _, a := range AllAlgorithms() {
		if !a.Is(Leased) {
			timed = append(timed, a)
		}
	}
	return timed
}

// ParseAlgorithm returns the algorithm of units per time that rules call name.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for _, a := range Algorithms() {
		if algorithms[a].name == name {
			return a, true
		}
	}
	return 0, false
}

// row returns what is known of a: of one that does not exist, nothing.
func (a Algorithm) row() *row {
	if a >= numAlgorithms {
		a = 0
	}
	return &algorithms[a]
}

// String returns the name used in rules, such as "token_bucket".
func (a Algorithm) String() string {
	if name := a.row().name; name != "" {
		return name
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// Is reports whether a has one of the traits.
func (a Algorithm) Is(t Trait) bool { return a.row().traits&t != 0 }

// KeyLetter returns the letter that starts [Key.Limit] of limits made from
// rules, so that a limit whose algorithm changes starts with fresh counters.
func (a Algorithm) KeyLetter() string { return a.row().letter }

// MaxUnits returns the largest Max that a limit of this algorithm may have.
func (a Algorithm) MaxUnits() int64 { return a.row().most }

// New checks s and prepares it for decisions. Its errors say which figure is
// out of which bounds.
func New(s Spec) (*Limit, error) {
	r := s.Algorithm.row()
	if r.name == "" {
		return nil, fmt.Errorf("unknown algorithm %d", s.Algorithm)
	}
	l := &Limit{spec: s, row: r, traits: r.traits, window: s.Window.Microseconds(), capacity: s.Max}
	if err := s.check(r); err != nil {
		return nil, err
	}
	l.ahead = l.window
	if r.prepare != nil {
		if err := r.prepare(l); err != nil {
			return nil, err
		}
	}
	l.setCalendar()
	if err := l.setOverflow(); err != nil {
		return nil, err
	}
	l.ahead = max(l.ahead, MinAhead.Microseconds())
	return l, nil
}

// MustNew is New for limits known to be valid; it panics on an error.
func MustNew(s Spec) *Limit {
	l, err := New(s)
	if err != nil {
		panic(err)
	}
	return l
}
