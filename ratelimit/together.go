package ratelimit

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// A gateway may ask with one descriptor for each backend that it could choose, and report for the one that it chose.
// The reservations of the others end with that report. A report has no token, so the calls of a key are alike only if
// all of them ask for the same backends: a key whose calls ask for others as well ends nothing but its own reservation,
// and the others expire. Else one client's report would end the reservation of another.

// A together is a reservation that requests ask for with another one.
type together struct {
	group string
	view  *ruleView
}

// A togetherTable has, for the groups of reservations, those that all calls ask for together with them: none if calls
// differ.
type togetherTable struct {
	mu    sync.Mutex
	of    map[string][]together
	bytes int
	used  atomic.Bool // of has had rows
}

// maxTogether bounds the table, in bytes.
const maxTogether = 1 << 20

// togetherSize is about what a row takes beside its strings, in bytes.
const togetherSize = 64

// with returns the reservations that are asked for with that of a group. Nobody changes what it returns.
func (t *togetherTable) with(group string) []together {
	if !t.used.Load() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[group]
}

// note remembers that reservations were asked for in one call, or that one was asked for alone.
func (t *togetherTable) note(all []together) {
	if len(all) < 2 && !t.used.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range all {
		row, known := t.of[all[i].group]
		switch {
		case !known && len(all) > 1:
			t.set(all, i)
		case known && !isRow(row, all, i):
			t.of[all[i].group] = nil // its calls differ
		}
	}
}

// isRow reports whether a row has all but all[i].
func isRow(row, all []together, i int) bool {
	return len(row) == len(all)-1 && slices.Equal(row[:i], all[:i]) && slices.Equal(row[i:], all[i+1:])
}

// set gives the group of all[i] a row of all others. A table that is full begins anew.
func (t *togetherTable) set(all []together, i int) {
	row, size := make([]together, 0, len(all)-1), togetherSize+len(all[i].group)
	for j, o := range all {
		if j != i {
			row = append(row, together{strings.Clone(o.group), o.view})
			size += togetherSize + len(o.group)
		}
	}
	if t.of == nil || t.bytes+size > maxTogether {
		t.of, t.bytes = map[string][]together{}, 0
		t.used.Store(true)
	}
	t.of[strings.Clone(all[i].group)] = row
	t.bytes += size
}

// keepTogether remembers which reservations of the call a report may end together: those of descriptors with the same
// keys. Of the candidates of a choice only one has a reservation.
func (c *Call) keepTogether(b *Batch, v *limit.Verdict) {
	if len(c.reserved) == 0 || len(c.reserved) == 1 && !b.rules.together.used.Load() {
		return
	}
	var all []together
	var first *Decision
	for i := range c.reserved {
		r := &c.reserved[i]
		d := &c.Decisions[r.decision]
		if d.view.reserve.Match != descriptors.MatchOldest || c.Ops[r.op].Alternative() || !v.Outcomes[r.op].Admitted {
			continue
		}
		if first == nil {
			first = d
		}
		one := together{d.match.Group, d.view}
		if slices.EqualFunc(d.Entries, first.Entries, sameKey) {
			all = append(all, one)
		} else {
			b.rules.together.note([]together{one})
		}
	}
	all = slices.CompactFunc(all, func(a, b together) bool { return a.group == b.group })
	b.rules.together.note(all)
}

func sameKey(a, b descriptors.Entry) bool { return a.Key == b.Key }
