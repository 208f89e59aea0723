package memory

import (
	"math/rand/v2"

	"github.com/headgate-rls/headgate/limit"
)

// A budget is the keys in a shard whose limits have the same figures, as those of a rule have. When the shard is
// full, a key of the largest budget goes: a client that makes many keys pays with its own.
type budget struct {
	figures limit.Spec
	entries []*entry
}

// budgets are those of a shard.
type budgets struct {
	of      map[limit.Spec]*budget
	largest *budget // nil: not known; others may have grown to its size since
	size    int     // of largest, when it was looked for
}

// add puts e into the budget of its limit.
func (b *budgets) add(e *entry) {
	figures := e.of.Spec()
	of := b.of[figures]
	if of == nil {
		of = &budget{figures: figures}
		b.of[figures] = of
	}
	e.budget, e.place = of, int32(len(of.entries))
	of.entries = append(of.entries, e)
	if b.largest != nil && len(of.entries) > len(b.largest.entries) {
		b.largest, b.size = of, len(of.entries)
	}
}

// remove takes e out of its budget.
func (b *budgets) remove(e *entry) {
	of, last := e.budget, len(e.budget.entries)-1
	of.entries[e.place] = of.entries[last]
	of.entries[e.place].place = e.place
	of.entries[last] = nil
	of.entries = of.entries[:last]
	switch {
	case last == 0:
		delete(b.of, of.figures)
	case cap(of.entries) > 4*last && last > 1024: // what has become far too large
		of.entries = append(make([]*entry, 0, 2*last), of.entries...)
	}
	if of == b.largest && last < b.size/2 {
		b.largest = nil
	}
}

// victim returns the key that goes if one has to.
func (b *budgets) victim(now limit.Instant) *entry {
	if b.largest == nil {
		for _, of := range b.of {
			if b.largest == nil || len(of.entries) > len(b.largest.entries) {
				b.largest = of
			}
		}
		b.size = len(b.largest.entries)
	}
	return b.largest.victim(now)
}

// looks is how many keys of a budget are compared, and mostLooks how many if all so far are at their limits.
const looks, mostLooks = 16, 64

// victim returns the least used of some keys; by chance, so that nobody chooses which.
func (b *budget) victim(now limit.Instant) (least *entry) {
	n, most := len(b.entries), -1.0
	for i := range min(n, mostLooks) {
		e := b.entries[i]
		if n > mostLooks {
			e = b.entries[rand.IntN(n)]
		}
		if left := e.left(now); left > most {
			least, most = e, left
		}
		if i >= looks && most > 0 && n > mostLooks {
			break
		}
	}
	return least
}

// left returns which part of its limit e has left.
func (e *entry) left(now limit.Instant) float64 {
	_, out := limit.Step(e.state(), &limit.Op{Limit: e.of}, now)
	return float64(out.Remaining) / float64(max(e.of.Capacity(), 1))
}
