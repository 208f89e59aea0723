package prefetch

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A holding is what this process holds of one limit under one key, and what
// the store said of it last. It belongs to a shard, whose lock guards it.
//
// left, lent and asked together are always less than the limit's Share, as it is when
// units are asked for.
type holding struct {
	key   limit.Key
	limit *limit.Limit
	given bool // at instants that callers give
	auto  bool // the Share follows the traffic

	left  int64 // units to be spent
	lent  int64 // units of requests that the store is deciding
	asked int64 // units that the store is being asked for
	epoch uint64
	gone  bool // no longer in the shard

	sent      time.Duration // when the store was asked, no later than at
	at        limit.Instant // when it decided, by its clock
	remaining int64         // what it had left then
	reset     limit.Instant // when it will be as good as unused
	expires   limit.Instant // when left expires
	again     limit.Instant // from when it is worth taking ahead

	usedAt       time.Duration
	adaptive              // zero unless auto
	next         *holding // of another limit under the key
	newer, older *holding // by usedAt
}

// over reports whether h is known to be of no more use at now.
func (h *holding) over(now time.Duration) bool {
	if h.asked+h.lent > 0 {
		return false
	}
	if h.auto {
		return h.left == 0 && now-h.usedAt >= unused
	}
	return now-h.sent >= max(h.expires, h.again).Sub(h.at)+longTrip
}

// ask returns how many units to take ahead for op, which needs a trip anyway:
// no more than n in one trip, and never so many that more than n-1 are held.
func (h *holding) ask(op *limit.Op, at limit.Instant, share int64) int64 {
	if op.Cost <= 0 || h.asked > 0 || at < h.again {
		return 0
	}
	h.asked = max(min(share-op.Cost, share-1-h.left-h.lent), 0)
	return h.asked
}

// hear keeps what the store said of the limit, asked at sent.
func (h *holding) hear(at limit.Instant, out *limit.Outcome, sent time.Duration) {
	if sent < h.sent {
		return // a later trip was faster
	}
	if h.at-at > ahead { // the store's clock has stepped back: instants by it mean nothing any more
		h.expires, h.again = at, at
	}
	h.sent, h.at = sent, at
	h.remaining, h.reset = out.Remaining, at.Add(out.Reset)
}

// expiry returns when units taken at instant at expire: as soon as they
// do not count any more. For a token bucket, where they count until it is full,
// that is not known; they are held until an empty one would be.
func (h *holding) expiry(at limit.Instant, reset time.Duration) limit.Instant {
	if !h.limit.Is(limit.Refilled) {
		return at.Add(reset)
	}
	return at.Add(max(h.limit.RefillTime(h.limit.Capacity()), minBucketHold))
}

// outcome is that of op, which has room here, at instant at.
func (h *holding) outcome(op *limit.Op, at limit.Instant) limit.Outcome {
	out := limit.Outcome{Admitted: true, Remaining: h.total(h.remaining), Reset: max(h.reset.Sub(at), 0)}
	if max(op.Cost, 1) > max(h.left, h.remaining) {
		out.Retry = out.Reset // at most: then all is there
	}
	return out
}

// total is what is left here and there, where the store has so many.
func (h *holding) total(remaining int64) int64 {
	return min(remaining+h.left, max(h.limit.Capacity(), remaining))
}
