package denycache

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A refusal is a verdict's outcome of one op: it had no room, or it had room in a
// request that another op refused.
type refusal struct {
	limit *limit.Limit
	cost  int64         // at least one
	at    limit.Instant // the store's, or the given one
	given bool          // at came with the request
	room  bool          // it is no refusal
	sent  time.Duration // when the store was asked, on this cache's clock

	remaining    int64
	retry, reset time.Duration // from at; retry may be limit.Never
}

// learn makes a refusal of an outcome, and says whether it is one of use.
func (r *refusal) learn(op *limit.Op, out *limit.Outcome, at limit.Instant) bool {
	r.limit, r.cost, r.at = op.Limit, max(op.Cost, 1), at
	r.remaining, r.retry, r.reset, r.room = out.Remaining, out.Retry, out.Reset, false
	if op.Limit.Overflow() != limit.Refuse && !r.nothingLeft(op) {
		return false
	}
	return !out.Admitted && at > 0 && out.Reset >= 0 && (out.Retry > 0 || out.Retry == limit.Never)
}

// nothingLeft says whether what refused op, whose limit takes something of costs
// without room, takes nothing of later ones either, and makes r the refusal of a
// single unit: of any other, a unit may come back before it has room.
func (r *refusal) nothingLeft(op *limit.Op) bool {
	switch {
	case op.Limit.Overflow() == limit.Debt:
		return false // more may be owed
	case r.cost == 1:
		return true
	case op.Limit.Is(limit.Isolated) && op.Limit.Capacity() > 0:
		r.cost, r.retry = 1, r.reset
		return true
	}
	return false
}

// answer tells what the store would say to cost, at least that of the refusal,
// at instant now, if it still refuses.
func (r *refusal) answer(cost int64, now limit.Instant, out *limit.Outcome) bool {
	passed := now.Sub(r.at)
	if passed < 0 || now > limit.MaxInstant || r.retry != limit.Never && passed >= r.retry {
		return false
	}
	*out = limit.Outcome{Remaining: r.remaining, Retry: limit.Never, Reset: max(r.reset-passed, 0)}
	if r.retry != limit.Never && cost <= r.limit.Capacity() {
		out.Retry = r.retry - passed
	}
	return true
}

// see remembers the figures of a limit that had room, in a request that another
// one refused.
func (r *refusal) see(op *limit.Op, out *limit.Outcome, at limit.Instant) {
	*r = refusal{limit: op.Limit, cost: op.Cost, at: at, room: true, remaining: out.Remaining, reset: out.Reset}
}
