package limit

import (
	"fmt"
	"strings"
	"time"
)

// Bounds of a limit. They keep every intermediate result below 2^53.
const (
	MinWindow = time.Millisecond
	MaxWindow = 10 * 366 * 24 * time.Hour // ten years, leap days included

	// MaxUnits bounds Max and Burst for every algorithm but SlidingWindow.
	MaxUnits = 1 << 40
	// MaxSlidingWindowUnits bounds Max of a SlidingWindow, whose weights take
	// 20 of the 52 bits.
	MaxSlidingWindowUnits = 1 << 32
	// MaxInFlight bounds Max of a Concurrency limit, each unit of which is
	// remembered by name.
	MaxInFlight = 1 << 20
	// MaxRate is the fastest refill of a TokenBucket, in units per second.
	MaxRate = 10_000_000

	// MinAhead is how far a state may lie ahead of an op however short its
	// window is: callers read a clock, wait for their turn, and come out of order.
	MinAhead = time.Second

	gridSteps = 1 << 20 // resolution of a SlidingWindow's weight
	holdSteps = 16      // resolution of Hold
)

// A Spec is what an operator says of a limit.
type Spec struct {
	Algorithm Algorithm
	// Max is how many units pass per Window, or are in flight at a time. Zero
	// refuses everything, except for a TokenBucket, where it must be at least 1.
	Max int64
	// Window is the period, in whole microseconds from MinWindow to MaxWindow;
	// for Concurrency the life of a lease that is neither given back nor
	// renewed.
	Window time.Duration
	// Burst is the capacity of a TokenBucket; zero means Max. Other
	// algorithms have none and want zero.
	Burst int64
	// Hold is how long Concurrency counts a refused request in
	// [Outcome.InFlight], so that callers see how much more is asked for than
	// there is. It never refuses anything. Where units are given back without
	// a name, also by refused requests, it must be as long as Window: then it
	// pairs those. Zero remembers nothing; other algorithms want zero.
	Hold time.Duration
	// Overflow says what is taken of a cost that has no room. Concurrency
	// wants Refuse.
	Overflow Overflow
	// MaxDebt is how many units below zero Debt goes; zero means as many as
	// the limit can have above zero (Max, or Burst), or what is paid back in 10
	// years if that is less. Other overflows want zero.
	MaxDebt int64
	// Calendar: the windows are those of the calendar in Zone, days, weeks that begin
	// on Monday, months or years, as Window says: 24 hours, or 7, 30 or 365 times as
	// much. FixedWindow only, and without Debt.
	Calendar bool
	// Zone is that of Calendar; nil is UTC. It is nil without Calendar.
	Zone *time.Location
}

// check reports which figure of s is out of bounds. What only a bucket knows is
// left to prepareBucket.
func (s *Spec) check(r *row) error {
	switch {
	case s.Window < MinWindow || s.Window > MaxWindow:
		return fmt.Errorf("window %v is outside %v to 10 years", s.Window, MinWindow)
	case s.Window%time.Microsecond != 0:
		return fmt.Errorf("window %v is finer than a microsecond", s.Window)
	case s.Max < 0 || s.Max > r.most:
		return fmt.Errorf("limit %d is outside 0 to %d", s.Max, r.most)
	case s.Burst != 0 && r.traits&Refilled == 0:
		return fmt.Errorf("%s has no burst", r.name)
	case s.Hold != 0 && r.traits&Leased == 0:
		return fmt.Errorf("%s has no hold", r.name)
	case s.Hold < 0 || s.Hold > s.Window || s.Hold%time.Microsecond != 0:
		return fmt.Errorf("hold %v is not whole microseconds from 0 to the window, %v", s.Hold, s.Window)
	}
	if err := s.checkCalendar(); err != nil {
		return err
	}
	return s.checkOverflow(r)
}

// A Limit is a valid [Spec] with what decisions need computed beforehand. It
// is immutable, and shared by all requests that its rule matches.
type Limit struct {
	spec     Spec
	row      *row
	traits   Trait // those of row
	window   int64 // µs
	capacity int64 // most units that one request can ever get
	ahead    int64 // µs that a state may lie ahead of an op; see clock.go

	// TokenBucket: one unit takes num/den µs to come back, so a level is kept
	// in 1/den µs and one unit is worth num of it. SlidingLog with Debt: one unit
	// takes num/den µs to be paid back.
	num, den int64
	full     int64 // Burst*num

	// SlidingWindow: the window is cut into cells of cell µs.
	cell, cells int64

	// Concurrency: refusals are remembered for hold µs, and forgotten together
	// with others of the same holdStep µs.
	hold, holdStep int64

	// Overflow: how far below zero a cost without room takes a state, -1 if it
	// takes nothing; for a log or bucket owe µs are needed to pay that back. strict
	// is the limit with the overflow Refuse.
	below, owe int64
	strict     *Limit

	share int64 // see Share

	calendar *calendar // nil unless the windows follow one
}

// Share returns how many units a replica may take at once, to spend on later ops
// without asking the store; 0 or 1 means none, [AutoShare] as many as each key's traffic
// needs. Decisions do not depend on it: backends/layers/prefetch sees to it. It is not
// part of the Spec.
func (l *Limit) Share() int64 { return l.share }

// AutoShare is a Share that follows the traffic of each key, and NoShare none, whatever the
// service does by default.
const (
	AutoShare = -1
	NoShare   = -2
)

// TakesAhead reports whether a replica may take units ahead.
func (l *Limit) TakesAhead() bool { return l.share > 1 || l.share == AutoShare }

// WithShare returns l with another Share.
func (l *Limit) WithShare(n int64) *Limit {
	if n == l.share {
		return l
	}
	other := *l
	other.share = n
	if l.strict == l {
		other.strict = &other
	}
	return &other
}

// Same reports whether l and other are made from equal Specs.
func (l *Limit) Same(other *Limit) bool {
	if l == other || other == nil {
		return l == other
	}
	// A zone that was loaded again is another one, with the same name.
	a, b := l.spec, other.spec
	same := a.Zone.String() == b.Zone.String()
	a.Zone, b.Zone = nil, nil
	return same && a == b
}

// Spec returns what the limit was made from, with Burst filled in.
func (l *Limit) Spec() Spec { return l.spec }

// Algorithm returns how the limit counts.
func (l *Limit) Algorithm() Algorithm { return l.spec.Algorithm }

// Max returns the units per window.
func (l *Limit) Max() int64 { return l.spec.Max }

// Window returns the period: of calendar windows the nominal one, see [Spec.Calendar].
func (l *Limit) Window() time.Duration { return l.spec.Window }

// Capacity returns the most units that one request can ever be granted: the
// burst of a token bucket, else Max.
func (l *Limit) Capacity() int64 { return l.capacity }

// Quota returns how many units an unused limit has, which is the most that can remain of it, and the time in which it
// has all of them again: its window, or that in which a token bucket refills.
func (l *Limit) Quota() (units int64, over time.Duration) {
	if l.Is(Refilled) && l.capacity != l.spec.Max {
		return l.capacity, l.RefillTime(l.capacity)
	}
	return l.spec.Max, l.spec.Window
}

// Interval returns the time in which a token bucket regains one unit, or in
// which a sliding log pays back one that it owes, as num/den microseconds. It is how drivers that decide elsewhere than
// in Go (Lua, SQL) get the same arithmetic.
func (l *Limit) Interval() (num, den int64) { return l.num, l.den }

// RefillTime returns how long a [Refilled] limit takes to regain units, rounded
// up to microseconds. They must be no more than Capacity.
func (l *Limit) RefillTime(units int64) time.Duration { return micros(ceilDiv(units*l.num, l.den)) }

// WindowEnd returns when the window that at is in ends, for an [Aligned] limit.
func (l *Limit) WindowEnd(at Instant) Instant {
	_, end := l.windowOf(bounded(at))
	return end
}

// Grid returns a sliding window's resolution: the weight of the previous
// window falls in steps (at most 2^20) of step microseconds each, counted from
// the start of the current one. The last of them may be cut short.
func (l *Limit) Grid() (step, steps int64) { return l.cell, l.cells }

// Hold returns how long a Concurrency limit remembers a refusal, and in what
// steps: with others of the same step it is forgotten at the step's end.
func (l *Limit) Hold() (hold, step time.Duration) { return micros(l.hold), micros(l.holdStep) }

// Figures returns the two figures that decisions by this algorithm need beside
// Capacity, Window and Below: those of Interval, Grid or Hold (in microseconds), or
// zeros. They are for drivers that hand limits of any algorithm to code
// elsewhere.
func (l *Limit) Figures() (x, y int64) {
	if l.row.figures == nil {
		return 0, 0
	}
	return l.row.figures(l)
}

// Is reports whether the limit's algorithm has one of the traits.
func (l *Limit) Is(t Trait) bool { return l.traits&t != 0 }

// String renders the limit as rules and messages write it.
func (l *Limit) String() string {
	switch {
	case l.below > 0:
		return fmt.Sprintf("%v overflow debt %d", l.strict, l.below)
	case l.below == 0:
		return fmt.Sprintf("%v overflow saturate", l.strict)
	case l.Is(Refilled):
		return fmt.Sprintf("%s %d/%s burst %d", l.row.name, l.spec.Max, windowText(l.spec.Window), l.spec.Burst)
	case l.Is(Leased):
		return fmt.Sprintf("%s %d", l.row.name, l.spec.Max)
	case l.Calendar():
		return fmt.Sprintf("%s %d/%s of the calendar in %v", l.row.name, l.spec.Max, windowText(l.spec.Window), l.spec.Zone)
	}
	return fmt.Sprintf("%s %d/%s", l.row.name, l.spec.Max, windowText(l.spec.Window))
}

// windowText is a duration as rules write it: 1m, not 1m0s.
func windowText(d time.Duration) string {
	text := d.String()
	if cut, ok := strings.CutSuffix(text, "m0s"); ok {
		text = cut + "m"
	}
	if cut, ok := strings.CutSuffix(text, "h0m"); ok {
		text = cut + "h"
	}
	return text
}
