package limit

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Token bucket: the level rises by den per microsecond up to full, and one
// unit costs num; see Limit.Interval. Fractions of a unit are
// kept, so a key that is asked often refills as fast as one that is not.

// prepareBucket checks a bucket's rate and burst, and computes how it refills.
func prepareBucket(l *Limit) error {
	s := &l.spec
	if s.Max < 1 {
		return errors.New("a token bucket's rate must be at least 1 per window; to refuse everything use fixed_window " +
			"with limit 0")
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
	if !l.setInterval(s.Burst) {
		return fmt.Errorf("burst %d takes too long to refill at %d per %v; use a smaller burst", s.Burst, s.Max, s.Window)
	}
	l.full = s.Burst * l.num
	l.ahead = min(l.window, ceilDiv(l.full, l.den)) // no longer than it needs to fill
	return nil
}

// setInterval finds num and den such that num/den is the refill interval in
// microseconds and units*num is exact, and reports whether there are such. The
// interval is exact where that fits 52 bits (it does for all but extreme pairs
// of units and window); else it is rounded up to a decimal fraction with at
// least six significant digits, so that the rate is low by less than 10^-6 and
// never high.
func (l *Limit) setInterval(units int64) bool {
	s := &l.spec
	g := gcd(s.Max, l.window)
	if num, den := l.window/g, s.Max/g; units <= maxExact/num {
		l.num, l.den = num, den
		return true
	}
	// Largest power of ten that keeps units*num within bounds.
	for scale := int64(10_000_000); scale >= 1; scale /= 10 {
		num, ok := mulCeilDiv(l.window, scale, s.Max)
		if ok && num >= 1_000_000 && units <= maxExact/num {
			l.num, l.den = num, scale
			return true
		}
	}
	return false
}

// mulCeilDiv returns a*b/d, rounded up, of numbers above zero; false if that is no int64. Package math/big would make
// every program 50 KB larger.
func mulCeilDiv(a, b, d int64) (n int64, ok bool) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	low, carry := bits.Add64(low, uint64(d-1), 0)
	if high += carry; high >= uint64(d) {
		return 0, false
	}
	quotient, _ := bits.Div64(high, low, uint64(d))
	return int64(quotient), quotient <= math.MaxInt64
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// level returns s's level at instant now >= s.At, in 1/den µs. A level that
// another limit wrote keeps its whole units: lowering the burst cuts it off,
// raising it gives nothing at once.
func (l *Limit) level(s *State, now Instant) int64 {
	if s.M <= 0 {
		return l.full
	}
	level := max(s.N, 0)
	if s.M != l.num {
		level = min(level/s.M, l.capacity) * l.num
	}
	level = min(level, l.full)
	if gained := int64(now - min(max(s.At, 0), now)); gained < ceilDiv(l.full-level, l.den) {
		return level + gained*l.den
	}
	return l.full
}

func stepTokenBucket(l *Limit, s *State, cost int64, now Instant, out *Outcome) {
	level := l.level(s, now)
	admitted := cost < 0 || wanted(cost) <= level/l.num
	if admitted && cost != 0 {
		if cost > 0 {
			level -= cost * l.num
		} else {
			level += min(refund(cost, l.capacity)*l.num, l.full-level)
		}
		*s = State{At: now, N: level, M: l.num}
	}
	out.Admitted, out.Remaining, out.Reset = admitted, level/l.num, micros(ceilDiv(l.full-level, l.den))
	switch n := wanted(cost); {
	case n > l.capacity:
		out.Retry = Never
	case n*l.num > level:
		out.Retry = micros(ceilDiv(n*l.num-level, l.den))
	}
}

// overflowBucket takes what a cost takes that has no room. Of what is left it takes
// whole units. A level below zero is kept as a state that lies ahead.
func overflowBucket(l *Limit, s *State, cost int64, now Instant, ahead int64) (taken int64) {
	level := l.level(s, now)
	left := level / l.num
	owe := min(cost-left, l.mayOwe(ahead))
	if taken = left + owe; taken <= 0 {
		return 0
	}
	*s = l.bucketAt(now, level-taken*l.num)
	return taken
}

// bucketAt returns the state of a bucket with this level, which lies ahead if the level
// is below zero.
func (l *Limit) bucketAt(now Instant, level int64) State {
	if level < 0 {
		wait := ceilDiv(-level, l.den)
		now, level = later(now, wait), min(level+wait*l.den, l.num-1)
	}
	return State{At: now, N: level, M: l.num}
}

func moveBucket(_ *Limit, s State, now Instant) State {
	s.At = now
	return s
}

func endsBucket(l *Limit, s State) Instant {
	return s.At + Instant(ceilDiv(l.full-l.level(&s, s.At), l.den))
}
