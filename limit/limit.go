package limit

import (
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Algorithm names how requests are counted against a limit.
type Algorithm uint8

// The algorithms. The zero Algorithm is none of them.
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

var algorithmNames = [numAlgorithms]string{
	FixedWindow:   "fixed_window",
	SlidingLog:    "sliding_log",
	SlidingWindow: "sliding_window",
	TokenBucket:   "token_bucket",
	Concurrency:   "concurrency",
}

// Algorithms returns the algorithms that count units per time, in the order of
// their values. Concurrency, which counts requests in flight, is not one.
func Algorithms() []Algorithm {
	return []Algorithm{FixedWindow, SlidingLog, SlidingWindow, TokenBucket}
}

// String returns the name used in rules, such as "token_bucket".
func (a Algorithm) String() string {
	if a == 0 || int(a) >= len(algorithmNames) {
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
	return algorithmNames[a]
}

// ParseAlgorithm returns the algorithm that rules call name.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for _, a := range Algorithms() {
		if algorithmNames[a] == name {
			return a, true
		}
	}
	return 0, false
}

// Bounds of a limit. They keep every intermediate result below 2^53.
const (
	MinWindow = time.Millisecond
	MaxWindow = 10 * 366 * 24 * time.Hour // ten years, leap days included

	maxExact = 1 << 52 // largest product that state and decisions may need

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
	// [Outcome.InFlight], so that one can tell how much more is asked for than
	// there is. It never refuses anything. Where units are given back without
	// a name, also by who was refused, it must be as long as Window: then it
	// pairs those. Zero remembers nothing; other algorithms want zero.
	Hold time.Duration
}

// A Limit is a valid [Spec] with what decisions need computed beforehand. It
// is immutable, and shared by all requests that its rule matches.
type Limit struct {
	spec     Spec
	window   int64 // µs
	capacity int64 // most units that one request can ever get
	ahead    int64 // µs that a state may lie ahead of an op; see clock.go

	// TokenBucket: one unit takes num/den µs to come back, so a level is kept
	// in 1/den µs and one unit is worth num of it.
	num, den int64
	full     int64 // Burst*num

	// SlidingWindow: the window is cut into steps of step µs.
	step, steps int64

	// Concurrency: refusals are remembered for hold µs, and forgotten together
	// with others of the same holdStep µs.
	hold, holdStep int64
}

// New checks s and prepares it for decisions. Its errors say which figure is
// out of which bounds.
func New(s Spec) (*Limit, error) {
	if s.Algorithm == 0 || s.Algorithm >= numAlgorithms {
		return nil, fmt.Errorf("unknown algorithm %d", s.Algorithm)
	}
	if s.Window < MinWindow || s.Window > MaxWindow {
		return nil, fmt.Errorf("window %v is outside %v to 10 years", s.Window, MinWindow)
	}
	if s.Window%time.Microsecond != 0 {
		return nil, fmt.Errorf("window %v is finer than a microsecond", s.Window)
	}
	most := int64(MaxUnits)
	switch s.Algorithm {
	case SlidingWindow:
		most = MaxSlidingWindowUnits
	case Concurrency:
		most = MaxInFlight
	}
	if s.Max < 0 || s.Max > most {
		return nil, fmt.Errorf("limit %d is outside 0 to %d", s.Max, most)
	}
	l := &Limit{spec: s, window: s.Window.Microseconds(), capacity: s.Max}
	switch s.Algorithm {
	case TokenBucket:
		if err := l.prepareBucket(); err != nil {
			return nil, err
		}
	case SlidingWindow:
		l.step = (l.window + gridSteps - 1) / gridSteps
		l.steps = (l.window + l.step - 1) / l.step
	case Concurrency:
		l.hold = s.Hold.Microseconds()
		l.holdStep = ceilDiv(l.hold, holdSteps*1000) * 1000
	}
	l.setAhead()
	if s.Burst != 0 && s.Algorithm != TokenBucket {
		return nil, fmt.Errorf("%v has no burst", s.Algorithm)
	}
	if s.Hold != 0 && s.Algorithm != Concurrency {
		return nil, fmt.Errorf("%v has no hold", s.Algorithm)
	}
	if s.Hold < 0 || s.Hold > s.Window || s.Hold%time.Microsecond != 0 {
		return nil, fmt.Errorf("hold %v is not whole microseconds from 0 to the window, %v", s.Hold, s.Window)
	}
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

// prepareBucket finds num and den such that num/den is the refill interval in
// microseconds and Burst*num is exact. The interval is exact where that fits
// 52 bits (it does for all but extreme pairs of burst and window); else it is
// rounded up to a decimal fraction with at least six significant digits, so
// that the rate is low by less than 10^-6 and never high.
func (l *Limit) prepareBucket() error {
	s := &l.spec
	if s.Max < 1 {
		return errors.New("a token bucket's rate must be at least 1 per window; to refuse everything use fixed_window with limit 0")
	}
	if s.Burst == 0 {
		s.Burst = s.Max
	}
	if s.Burst < 1 || s.Burst > MaxUnits {
		return fmt.Errorf("burst %d is outside 1 to %d", s.Burst, int64(MaxUnits))
	}
	if s.Max > l.window*(MaxRate/1_000_000) {
		return fmt.Errorf("rate %d per %v is faster than %d per second", s.Max, s.Window, MaxRate)
	}
	l.capacity = s.Burst
	g := gcd(s.Max, l.window)
	if num, den := l.window/g, s.Max/g; s.Burst <= maxExact/num {
		l.num, l.den, l.full = num, den, s.Burst*num
		return nil
	}
	// Largest power of ten that keeps Burst*num within bounds.
	for scale := int64(10_000_000); scale >= 1; scale /= 10 {
		n := new(big.Int).Mul(big.NewInt(l.window), big.NewInt(scale))
		n.Add(n, big.NewInt(s.Max-1)).Div(n, big.NewInt(s.Max))
		if !n.IsInt64() {
			continue
		}
		if num := n.Int64(); num >= 1_000_000 && s.Burst <= maxExact/num {
			l.num, l.den, l.full = num, scale, s.Burst*num
			return nil
		}
	}
	return fmt.Errorf("burst %d takes too long to refill at %d per %v; use a smaller burst", s.Burst, s.Max, s.Window)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Spec returns what the limit was made from, with Burst filled in.
func (l *Limit) Spec() Spec { return l.spec }

// Algorithm returns how the limit counts.
func (l *Limit) Algorithm() Algorithm { return l.spec.Algorithm }

// Max returns the units per window.
func (l *Limit) Max() int64 { return l.spec.Max }

// Window returns the period.
func (l *Limit) Window() time.Duration { return l.spec.Window }

// Capacity returns the most units that one request can ever be granted: the
// burst of a token bucket, else Max.
func (l *Limit) Capacity() int64 { return l.capacity }

// Interval returns the time in which a token bucket regains one unit, as
// num/den microseconds. It is how drivers that decide elsewhere than in Go
// (Lua, SQL) get the same arithmetic.
func (l *Limit) Interval() (num, den int64) { return l.num, l.den }

// Grid returns a sliding window's resolution: the weight of the previous
// window falls in steps (at most 2^20) of step microseconds each, counted from
// the start of the current one. The last of them may be cut short.
func (l *Limit) Grid() (step, steps int64) { return l.step, l.steps }

// Hold returns how long a Concurrency limit remembers a refusal, and in what
// steps: with others of the same step it is forgotten at the step's end.
func (l *Limit) Hold() (hold, step time.Duration) { return micros(l.hold), micros(l.holdStep) }

// String renders the limit as rules and messages write it.
func (l *Limit) String() string {
	if l.spec.Algorithm == TokenBucket {
		return fmt.Sprintf("%v %d/%v burst %d", l.spec.Algorithm, l.spec.Max, l.spec.Window, l.spec.Burst)
	}
	if l.spec.Algorithm == Concurrency {
		return fmt.Sprintf("%v %d", l.spec.Algorithm, l.spec.Max)
	}
	return fmt.Sprintf("%v %d/%v", l.spec.Algorithm, l.spec.Max, l.spec.Window)
}
