package denycache

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A refusal is what a verdict told of one op that had no room.
type refusal struct {
	limit *limit.Limit
	cost  int64         // at least one
	at    limit.Instant // the store's, or the given one
	given bool          // at came with the request
	sent  time.Duration // when the store was asked, on this cache's clock

	remaining    int64
	retry, reset int64 // µs from at; retry is never for limit.Never
}

const never = -1

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// learn makes a refusal of an outcome, and says whether it is one of use.
func (r *refusal) learn(op *limit.Op, out *limit.Outcome, at limit.Instant) bool {
	r.limit, r.cost, r.at = op.Limit, max(op.Cost, 1), at
	r.remaining, r.reset = out.Remaining, out.Reset.Microseconds()
	switch {
	case out.Admitted || at <= 0 || out.Reset < 0:
		return false
	case out.Retry == limit.Never:
		r.retry = never
	case out.Retry > 0:
		r.retry = out.Retry.Microseconds()
	default:
		return false
	}
	return true
}

// sameLimit says whether l is the limit that refused, or one like it.
func (r *refusal) sameLimit(l *limit.Limit) bool {
	return r.limit == l || l != nil && r.limit.Spec() == l.Spec()
}

// covers says whether r can tell something about cost.
func (r *refusal) covers(cost int64) bool {
	switch r.limit.Algorithm() {
	case limit.FixedWindow, limit.TokenBucket:
		return cost > 0
	}
	return cost == r.cost
}

// answer tells what the store would say to cost, which r covers, at instant
// now, if it is known and a refusal.
func (r *refusal) answer(cost int64, now limit.Instant, loose bool, out *limit.Outcome) bool {
	passed := int64(now - r.at)
	if passed < 0 || now > limit.MaxInstant {
		return false // before the refusal it is not known what there was
	}
	switch r.limit.Algorithm() {
	case limit.FixedWindow:
		return r.fixedWindow(cost, passed, out)
	case limit.TokenBucket:
		return r.tokenBucket(cost, passed, out)
	case limit.SlidingLog, limit.SlidingWindow:
		return r.sliding(passed, loose, out)
	}
	return false
}

// fixedWindow: all stays as it is until the window ends, at reset.
func (r *refusal) fixedWindow(cost, passed int64, out *limit.Outcome) bool {
	if passed >= r.reset || cost <= r.remaining {
		return false
	}
	wait := micros(r.reset - passed)
	*out = limit.Outcome{Remaining: r.remaining, Retry: wait, Reset: wait}
	if cost > r.limit.Capacity() {
		out.Retry = limit.Never
	}
	return true
}

// sliding: units come back at instants that only the store knows. Of one cost
// it is known when enough will have; until then less than that is left, so
// what is left is known if one unit more had been enough, or if all is left.
func (r *refusal) sliding(passed int64, loose bool, out *limit.Outcome) bool {
	if r.retry != never && passed >= r.retry {
		return false
	}
	exact := passed == 0 || r.cost == r.remaining+1 || r.remaining == r.limit.Capacity()
	if !exact && !loose {
		return false
	}
	*out = limit.Outcome{Remaining: r.remaining, Retry: limit.Never, Reset: micros(max(r.reset-passed, 0))}
	if r.retry != never {
		out.Retry = micros(r.retry - passed)
	}
	return true
}

// tokenBucket finds the least and the greatest level that agree with what the
// store said, lets them rise, and answers where both give the same figures.
//
// An op at an instant before that of the bucket's level is decided at the
// level's own, and its waits are longer by the difference. The level found here
// is then lower than the true one, just so that it has the same value when that
// instant comes; until then what is left stays what it was.
func (r *refusal) tokenBucket(cost, passed int64, out *limit.Outcome) bool {
	least, most, ok := r.level()
	if !ok {
		return false
	}
	num, den := r.limit.Interval()
	full := r.limit.Capacity() * num
	least, most = rise(least, full, den, passed), rise(most, full, den, passed)
	left := max(r.remaining, least/num)
	if left != max(r.remaining, most/num) || cost <= left {
		return false
	}
	*out = limit.Outcome{Remaining: left, Retry: limit.Never, Reset: micros(max(r.reset-passed, 0))}
	if cost > r.limit.Capacity() {
		return true
	}
	wait := ceilDiv(cost*num-least, den)
	out.Retry = micros(wait)
	return wait == ceilDiv(cost*num-most, den)
}

// level returns the bounds of a token bucket's level at r.at, in 1/den µs. A
// wait of n µs says that what is missing is more than (n-1)*den and at most
// n*den.
func (r *refusal) level() (least, most int64, ok bool) {
	num, den := r.limit.Interval()
	full := r.limit.Capacity() * num
	if r.reset == 0 {
		return full, full, true
	}
	// Waits that even an empty bucket does not explain would overflow.
	if r.reset > ceilDiv(full, den) {
		return 0, 0, false
	}
	least, most = full-r.reset*den, full-(r.reset-1)*den-1
	if r.retry != never {
		want := r.cost * num
		least, most = max(least, want-r.retry*den), min(most, want-(r.retry-1)*den-1)
	}
	return least, most, least <= most
}

// rise returns what becomes of level in passed µs.
func rise(level, full, den, passed int64) int64 {
	if passed >= ceilDiv(full-level, den) {
		return full
	}
	return level + passed*den
}
