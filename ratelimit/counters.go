package ratelimit

import (
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/ratelimit/leases"
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
	if c.Response.OverLimit {
		d := c.Refuses
		if d.Counted {
			b.tally.add(d.Limit.refusals())
		}
		if d.keeps > 0 && d.At == d.keeps {
			b.tally.add(b.engine.conf.Metrics.Reservation(d.Limit.domain, d.Limit.rule).At(int(leases.Refused)))
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
	lane int // see [metrics.NextLane]
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
		t.list[i].counter.AddIn(t.lane, t.list[i].n)
		t.list[i].counter = nil
	}
	t.used = 0
}
