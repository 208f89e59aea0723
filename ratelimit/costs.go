package ratelimit

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// What the requests of a key have cost of late, for reserve: {amount: auto}. A key reserves its figure: at first the
// rule's default, whatever other keys cost. A request that costs more raises it at once. It halves after costRun
// requests in a row, over more than costSpan, that each cost at most half of it, and never falls below the rule's min.
// So who makes cheap requests first, to start many expensive ones at once, starts at most the budget ÷ min.

const (
	costRun  = 16
	costSpan = time.Minute
)

// A costTable has the figures of keys, as [figure.pack] writes them.
type costTable struct {
	seed  maphash.Seed
	slots keySlots
}

const costSlots = 1 << 15 // 256 KiB

func newCostTable() *costTable {
	return &costTable{seed: maphash.MakeSeed(), slots: make(keySlots, costSlots)}
}

// get returns how many units a key's figure has, 0 if it is the rule's default.
func (t *costTable) get(group string) int64 {
	slot, tag := t.slots.slot(maphash.String(t.seed, group))
	if v, ok := kept(slot.Load(), tag); ok {
		return unpackFigure(v).units
	}
	return 0
}

// learn notes what a request of a key has cost. It tries again if another request was faster: a rise must not be lost.
func (t *costTable) learn(group string, cost int64, r *descriptors.Reserve, now limit.Instant) {
	slot, tag := t.slots.slot(maphash.String(t.seed, group))
	at := int64(now) / int64(time.Second/time.Microsecond)
	for {
		old, f := slot.Load(), figure{since: at}
		if v, ok := kept(old, tag); ok {
			f = unpackFigure(v)
		}
		if slot.CompareAndSwap(old, tag|f.after(cost, r, at).pack()) {
			return
		}
	}
}

// A figure is what the requests of one key reserve.
type figure struct {
	units int64 // 0: the rule's default
	calls int   // how many have cost at most half of it, in a row
	since int64 // when the row began, in seconds
}

// after returns a figure after one more cost.
func (f figure) after(cost int64, r *descriptors.Reserve, now int64) figure {
	units := cmp.Or(f.units, r.Default)
	switch {
	case cost > units:
		return figure{units: min(cost, r.Max), since: now}
	case cost > units/2:
		return figure{units: f.units, since: now}
	}
	f.calls = min(f.calls+1, costRun)
	if f.calls < costRun || (now-f.since)%(1<<sinceBits) <= int64(costSpan/time.Second) {
		return f
	}
	return figure{units: max(units/2, r.Min), since: now}
}

// The bits of a packed figure. Where since is more than 24 days ago, its row counts as younger than it is.
const (
	sinceBits    = 21
	callsBits    = 8
	exponentBits = 6
	digits       = 5
)

// pack returns the figure with its units rounded up to five binary digits: so a call that is repeated soon reserves the
// same, and finds its reservation.
func (f figure) pack() uint64 {
	exponent := max(bits.Len64(uint64(f.units))-digits, 0)
	mantissa := (f.units + 1<<exponent - 1) >> exponent
	if mantissa == 1<<digits {
		mantissa, exponent = mantissa/2, exponent+1
	}
	v := uint64(f.since)%(1<<sinceBits)<<callsBits | uint64(f.calls)
	return v<<(exponentBits+digits) | uint64(exponent)<<digits | uint64(mantissa)
}

func unpackFigure(v uint64) figure {
	field := func(low, n int) int64 { return int64(v >> low % (1 << n)) }
	return figure{
		units: field(0, digits) << field(digits, exponentBits),
		calls: int(field(digits+exponentBits, callsBits)),
		since: field(digits+exponentBits+callsBits, sinceBits),
	}
}

// learn notes what a request has cost.
func (r *reserveView) learn(e *engine, group string, cost int64) {
	if r.By == descriptors.ReserveAuto {
		e.costs().learn(group, cost, r.Reserve, e.conf.Now())
	}
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
		if r.Report == descriptors.ReportDifference {
			return units // all of it, or the difference would be to something else
		}
	case descriptors.ReserveAuto:
		units = cmp.Or(e.costs().get(group), units)
		if estimate > 0 {
			units = min(units, estimate)
		}
		units = max(units, r.Min)
	}
	return min(units, r.Max, limit.MaxUnits)
}

// costs returns the table of costs, which is made when a rule needs it first.
func (e *engine) costs() *costTable {
	if t := e.known.Load(); t != nil {
		return t
	}
	e.known.CompareAndSwap(nil, newCostTable())
	return e.known.Load()
}
