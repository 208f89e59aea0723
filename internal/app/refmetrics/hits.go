package refmetrics

import (
	"math"
	"sync/atomic"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// hits count hits as envoyproxy/ratelimit does, by its names.
type hits struct {
	total  atomic.Uint64 // hits that were asked for
	over   atomic.Uint64 // those beyond the limit, in shadow mode too
	near   atomic.Uint64 // those between the limit's near-limit ratio and the limit
	within atomic.Uint64 // those of admitted descriptors
	shadow atomic.Uint64 // those beyond the limit that shadow mode admitted
	local  atomic.Uint64 // those beyond a limit that this process knew to be used up

	negative atomic.Uint64 // hits that were given back
}

// count counts those of a decision. nearLimit is the part of a limit from which hits are near it.
func (h *hits) count(c *ratelimit.Call, d *ratelimit.Decision, nearLimit float32) {
	cost := d.Cost
	h.total.Add(uint64(cost))
	if !d.Counted || d.Limit.Limit.Is(limit.Leased) { // the reference has no such limits
		return
	}
	op, out := &c.Ops[d.At], &c.Verdict.Outcomes[d.At]
	most := op.Limit.Max()
	// How many hits there are before and after this one, as the reference would count.
	before := max(most-out.Remaining-out.Taken, 0)
	if c.Verdict.Charged(c.Ops, d.At) {
		before = max(before-cost, 0)
	}
	after := before + cost
	near := int64(math.Floor(float64(float32(most) * nearLimit)))
	if out.Admitted {
		h.within.Add(uint64(cost))
		if after > near {
			h.near.Add(uint64(min(after-near, cost)))
		}
		return
	}
	over := cost
	if before < most && after > most {
		over = after - most
		h.near.Add(uint64(most - max(near, before)))
	}
	h.over.Add(uint64(over))
	if d.Known {
		h.local.Add(uint64(over))
	}
	if d.Limit.Shadow {
		h.shadow.Add(uint64(over))
	}
}
