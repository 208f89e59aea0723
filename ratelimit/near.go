package ratelimit

import (
	"hash/maphash"
	"slices"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
)

// A limit with warn_at is nearly used up from that part of its units on. Then the answer says so, the request has the
// rule's request_headers, and for each key there is one warning in each window.

// warnLeft is how many units are left of a limit that is nearly used up, at most; -1 if it never is.
func warnLeft(l *limit.Limit, warnAt int64) int64 {
	if warnAt == 0 {
		return -1
	}
	most := l.Capacity()
	return most - (most/100*warnAt + most%100*warnAt/100)
}

// nearlyUsed returns the first limit of a decision that is nearly used up, nil if none is.
func (c *Call) nearlyUsed(d *Decision) *LimitView {
	for at := d.First; at < d.First+d.n; at++ {
		if lv := c.views[at]; lv.warnLeft >= 0 && c.Verdict.Outcomes[at].Remaining <= lv.warnLeft {
			return lv
		}
	}
	return nil
}

// tellNear says which limits are nearly used up: in the answer, in the request that passes, and once in a log line and
// a metric.
func tellNear(b *Batch, c *Call) {
	for i := range c.Decisions {
		d := &c.Decisions[i]
		if d.Near == nil {
			continue
		}
		if len(d.Near.near) > 0 {
			c.Response.metadata = append(c.Response.metadata, d.Near.near)
		}
		if !c.Response.OverLimit {
			c.addRequestHeaders(d.view.rule.RequestHeaders)
		}
		b.engine.warnNear(b, c, d)
	}
}

// addRequestHeaders adds headers to the request that are not there yet.
func (c *Call) addRequestHeaders(headers []descriptors.Header) {
	for _, h := range headers {
		same := func(other descriptors.Header) bool { return other.Name == h.Name }
		if !slices.ContainsFunc(c.Response.RequestHeaders, same) {
			c.Response.RequestHeaders = append(c.Response.RequestHeaders, h)
		}
	}
}

// warnNear warns of a key whose limit is nearly used up, once in its window.
func (e *engine) warnNear(b *Batch, c *Call, d *Decision) {
	now, l := limit.Instant(b.Instant()), d.Near.Limit
	until := now.Add(l.Window())
	if l.Is(limit.Aligned) {
		until = l.WindowEnd(now)
	}
	if !e.warned.add(d.Near.Name, d.match.Group, now, until) {
		return
	}
	e.conf.Metrics.nearlyUsed(d.view.rule).Inc()
	if ok, skipped := e.warnings.Allow(); ok {
		e.conf.Log.Warn("a limit is nearly used up", "domain", c.Request.Domain, "rule", d.Near.Name,
			"warn_at_percent", d.Near.warnAt, "key", e.LoggedKey(c.Request.Domain, d.Entries), "suppressed", skipped)
	}
}

// warnedKeys have, for each key that was warned about, the second in which its window ends. A key that has lost its
// slot may be warned about again.
type warnedKeys struct {
	slots keySlots
	seed  maphash.Seed
}

const warnedSlots = 1 << 12 // 32 KiB

func newWarnedKeys() *warnedKeys {
	return &warnedKeys{slots: make(keySlots, warnedSlots), seed: maphash.MakeSeed()}
}

// add notes a key until an instant. It returns false if the key is noted already, for no longer than that.
func (w *warnedKeys) add(name, group string, now, until limit.Instant) bool {
	slot, tag := w.slots.slot(maphash.Comparable(w.seed, [2]string{name, group}))
	second := func(at limit.Instant) uint64 { return uint64(max(int64(at)/1e6, 0)) }
	old, end := slot.Load(), second(until-1)+1
	if ends, ok := kept(old, tag); ok && second(now) < ends && ends <= end {
		return false
	}
	return slot.CompareAndSwap(old, tag|end)
}

// nearlyUsed counts keys that have nearly used up a limit of a rule.
func (m *Metrics) nearlyUsed(r *descriptors.Rule) *metrics.Counter {
	return m.ofRule(func(m *Metrics) *metrics.Counters { return &m.near }, r.Domain, r.Path).At(0)
}

// warningsPerSecond is how many warnings of limits that are nearly used up are logged in a second.
const warningsPerSecond = 10
