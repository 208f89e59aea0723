package ratelimit

import (
	"math"
	"sync/atomic"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// countDecisions counts what became of each descriptor and which limit refused the request, and the hits that
// limits took although they did not fit.
func countDecisions(b *Batch, c *Call) {
	for i := range c.Decisions {
		d := &c.Decisions[i]
		switch {
		case d.returns:
		case d.view == nil:
			domain := "" // an unknown one is the caller's text: no label
			if d.match.Domain {
				domain = c.Request.Domain
			}
			b.tally.add(b.engine.conf.Metrics.noRule(domain))
		default:
			b.tally.add(d.view.counter(b.engine.conf.Metrics, b.rules.set, d.Entries, d.Outcome))
		}
	}
	if d := c.Refuses; c.Response.OverLimit {
		if d.Counted {
			b.tally.add(d.Limit.refusals())
		}
		if d.Tier != nil {
			d.Tier.hit()
		}
	}
	if c.Verdict == nil || c.Verdict.Err != nil {
		return
	}
	for i := range c.Verdict.Outcomes {
		if n := c.Verdict.Outcomes[i].Taken; n > 0 {
			c.views[i].overflow().Add(n)
		}
	}
}

// Count adds one to a counter when all sinks have read the slice. It is for sinks.
func (b *Batch) Count(c *metrics.Counter) { b.tally.add(c) }

// A tally adds up what the calls of a slice count. Calls often have counters in
// common, and all cores write those: so each is written once per slice, not once
// per call.
type tally struct {
	list [8]struct {
		counter *metrics.Counter
		n       int64
	}
	used int
}

// add adds one to a counter, at the next flush at the latest.
func (t *tally) add(c *metrics.Counter) {
	for i := range t.used {
		if t.list[i].counter == c {
			t.list[i].n++
			return
		}
	}
	if t.used == len(t.list) {
		t.flush()
	}
	t.list[t.used].counter, t.list[t.used].n = c, 1
	t.used++
}

// flush writes the counters.
func (t *tally) flush() {
	for i := range t.used {
		t.list[i].counter.Add(t.list[i].n)
		t.list[i].counter = nil
	}
	t.used = 0
}

// HitCounters count hits under a rule as envoyproxy/ratelimit does, by its names.
type HitCounters struct {
	Total  atomic.Uint64 // hits that were asked for
	Over   atomic.Uint64 // those beyond the limit, in shadow mode too
	Near   atomic.Uint64 // those between the limit's near-limit ratio and the limit
	Within atomic.Uint64 // those of admitted descriptors
	Shadow atomic.Uint64 // those beyond the limit that shadow mode admitted
}

// A HitMetrics keeps hits. Its methods may be called concurrently and must bound the labels
// that they accept.
type HitMetrics interface {
	// Hits returns the counters of a rule. The label is the rule's, or one with values of the
	// request; of names the rule in that case.
	Hits(domain, of, label string) *HitCounters
	// GlobalShadow counts a request that only the global shadow mode admits.
	GlobalShadow()
	// RulesLoaded drops the counters of rules that are not among those of set.
	RulesLoaded(set *descriptors.Set)
}

// countHits counts the hits of each descriptor, and requests that only the global shadow mode admits.
func countHits(b *Batch, c *Call) {
	for i := range c.Decisions {
		if d := &c.Decisions[i]; d.view != nil && (d.n > 0 || d.reports) && d.Cost > 0 {
			c.countHitsOf(b, d)
		}
	}
	if c.Refuses != nil && b.engine.conf.ShadowMode {
		b.engine.conf.Hits.GlobalShadow()
	}
}

func (c *Call) countHitsOf(b *Batch, d *Decision) {
	hits, cost := d.view.hitCounters(b, c.Request.Domain, d.Entries), d.Cost
	hits.Total.Add(uint64(cost))
	if !d.Counted || d.Limit.inFlight != nil { // the reference has no such limits
		return
	}
	op, out := &c.Ops[d.At], &c.Verdict.Outcomes[d.At]
	most := op.Limit.Max()
	// How many hits there are before and after this one, as the reference would count.
	before := max(most-out.Remaining-out.Taken, 0)
	if out.Admitted && (c.Verdict.Admitted || op.ChargesEach()) {
		before = max(before-cost, 0)
	}
	after := before + cost
	near := int64(math.Floor(float64(float32(most) * b.engine.conf.NearLimit)))
	if out.Admitted {
		hits.Within.Add(uint64(cost))
		if after > near {
			hits.Near.Add(uint64(min(after-near, cost)))
		}
		return
	}
	over := cost
	if before < most && after > most {
		over = after - most
		hits.Near.Add(uint64(most - max(near, before)))
	}
	hits.Over.Add(uint64(over))
	if d.Limit.shadow {
		hits.Shadow.Add(uint64(over))
	}
}

// hitCounters returns the counters of hits under the rule, which are looked up once per rule
// unless the label depends on the request.
func (v *ruleView) hitCounters(b *Batch, domain string, entries []descriptors.Entry) *HitCounters {
	m := b.engine.conf.Hits
	switch r := v.rule; {
	case v.override:
		return m.Hits(domain, "", descriptors.EntriesLabel(entries))
	case r.Metric.Detailed || r.Metric.ValueAt != nil:
		return m.Hits(r.Domain, r.Path, b.rules.set.MetricLabel(r, entries))
	}
	v.onceHits.Do(func() { v.hits = m.Hits(v.rule.Domain, v.rule.Path, v.rule.Path) })
	return v.hits
}
