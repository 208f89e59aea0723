package ratelimit

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// What requests have cost of late, for reserve: {amount: auto}. A figure follows costs up
// at once and down slowly, so that it is about their 95th percentile.

// A costTable has the figures of keys, in a fixed number of slots. A key that finds its slot
// taken takes it over: it was used last.
type costTable struct {
	seed  maphash.Seed
	slots [costSlots]atomic.Uint64 // 24 bits of the key's hash and 40 of the figure
}

const (
	costSlots  = 1 << 15 // 256 KiB
	figureBits = 40
	maxFigure  = 1<<figureBits - 1
	// costFalls: of how much a figure is above a cost, it falls by this part.
	costFalls = 16
)

func newCostTable() *costTable { return &costTable{seed: maphash.MakeSeed()} }

// slot returns the slot of a key and the bits of its hash that tell it from others there.
func (t *costTable) slot(group string) (slot *atomic.Uint64, tag uint64) {
	h := maphash.String(t.seed, group)
	return &t.slots[h%costSlots], h >> figureBits << figureBits
}

// get returns the figure of a key, 0 if it is not known.
func (t *costTable) get(group string) int64 {
	slot, tag := t.slot(group)
	if v := slot.Load(); v>>figureBits<<figureBits == tag {
		return int64(v & maxFigure)
	}
	return 0
}

func (t *costTable) learn(group string, cost int64) {
	slot, tag := t.slot(group)
	old := slot.Load()
	figure := int64(0)
	if old>>figureBits<<figureBits == tag {
		figure = int64(old & maxFigure)
	}
	slot.CompareAndSwap(old, tag|uint64(follow(figure, cost)))
}

// follow returns a figure after one more cost.
func follow(figure, cost int64) int64 {
	cost = min(max(cost, 1), maxFigure)
	if cost >= figure {
		return cost
	}
	return figure - (figure-cost+costFalls-1)/costFalls
}

// costs is the figure of all requests of a rule, for keys that are new.
type costs struct{ figure atomic.Int64 }

// learn notes what a request has cost.
func (r *reserveView) learn(e *engine, group string, cost int64) {
	if r.By != descriptors.ReserveAuto {
		return
	}
	e.costs().learn(group, cost)
	old := r.costs.figure.Load()
	r.costs.figure.CompareAndSwap(old, follow(old, cost))
}

// amount returns how many units a request reserves that estimates its cost; 0 is no
// estimate.
func (r *reserveView) amount(e *engine, group string, estimate int64) int64 {
	units := r.Default
	switch r.By {
	case descriptors.ReserveEstimate:
		if estimate > 0 {
			units = estimate
		}
	case descriptors.ReserveAuto:
		if known := e.costs().get(group); known > 0 {
			units = rounded(known)
		} else if known = r.costs.figure.Load(); known > 0 {
			units = rounded(known)
		}
		if estimate > 0 {
			units = min(units, estimate)
		}
	}
	return min(units, r.Max, limit.MaxUnits)
}

// rounded returns n rounded up to five binary digits: so a call that is repeated soon
// reserves the same, and finds its reservation.
func rounded(n int64) int64 {
	step := int64(1) << max(bits.Len64(uint64(n))-5, 0)
	return (n + step - 1) / step * step
}

// costs returns the table of costs, which is made when a rule needs it first.
func (e *engine) costs() *costTable {
	if t := e.known.Load(); t != nil {
		return t
	}
	e.known.CompareAndSwap(nil, newCostTable())
	return e.known.Load()
}
