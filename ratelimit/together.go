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
// The reservations of the others end with that report. Reports have no token, so a key's calls are alike: what the last
// of them has asked for together is what the next report ends.

// A together is a reservation that requests ask for with another one.
type together struct {
	group string
	view  *ruleView
}

// A togetherTable has, for the groups of reservations, those that were last asked for in the same call.
type togetherTable struct {
	mu    sync.Mutex
	of    map[string][]together
	bytes int
	used  atomic.Bool // of has had rows
}

// maxTogether bounds the table, in bytes. A table that is full begins anew: the next calls fill it.
const maxTogether = 1 << 20

// togetherSize is about what a row takes beside its strings, in bytes.
const togetherSize = 64

// with returns the reservations that were last asked for with that of a group. Nobody changes what it returns.
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
	if len(all) == 1 {
		delete(t.of, all[0].group)
		return
	}
	for i := range all {
		if t.has(all[i].group, all, i) {
			continue
		}
		t.set(all, i)
	}
}

// has reports whether the row of a group has all others.
func (t *togetherTable) has(group string, all []together, but int) bool {
	row := t.of[group]
	if len(row) != len(all)-1 {
		return false
	}
	for at, o := range row {
		if at >= but {
			at++
		}
		if o != all[at] {
			return false
		}
	}
	return true
}

// set gives the group of all[i] a row of all others.
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
	t.bytes += size // a row that is replaced counts until the table begins anew
}

// keepTogether remembers what the call has reserved together of what reports settle, but for the candidates of a
// choice, of which one has a reservation.
func (c *Call) keepTogether(b *Batch, v *limit.Verdict) {
	if len(c.reserved) == 0 || len(c.reserved) == 1 && !b.rules.together.used.Load() {
		return
	}
	var all []together
	for i := range c.reserved {
		r := &c.reserved[i]
		d := &c.Decisions[r.decision]
		if d.view.reserve.Match == descriptors.MatchOldest && !c.Ops[r.op].Alternative() && v.Outcomes[r.op].Admitted {
			all = append(all, together{d.match.Group, d.view})
		}
	}
	all = slices.CompactFunc(all, func(a, b together) bool { return a.group == b.group })
	b.rules.together.note(all)
}
