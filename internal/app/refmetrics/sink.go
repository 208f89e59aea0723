package refmetrics

import (
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
)

// See implements [ratelimit.Sink]: it counts the hits of each descriptor, and requests that only the global shadow mode
// admits.
func (m *Metrics) See(b *ratelimit.Batch, c *ratelimit.Call) {
	for i := range c.Decisions {
		d := &c.Decisions[i]
		switch {
		case d.Known:
			m.known.Inc()
		case d.Counted:
			m.asked.Inc()
		}
		switch {
		case d.LacksDomain():
			m.notFound.add(c.Request.Domain)
		case d.Charges() && d.Cost > 0:
			m.hitsUnder(b, c.Request.Domain, d).count(c, d, m.conf.NearLimit)
		case d.Charges() && d.Cost < 0:
			m.hitsUnder(b, c.Request.Domain, d).negative.Add(uint64(-d.Cost))
		}
	}
	if c.Refuses != nil && !c.Response.OverLimit {
		m.shadow.Inc()
	}
}

// hitsUnder returns the counters under the rule of a decision, which are looked up once per rule unless the label
// depends on the request.
func (m *Metrics) hitsUnder(b *ratelimit.Batch, domain string, d *ratelimit.Decision) *hits {
	switch r := d.Rule(); {
	case r.Domain == "": // the request brings the limit
		return m.of(domain, "", descriptors.EntriesLabel(d.Entries))
	case r.Metric.Detailed || r.Metric.ValueAt != nil:
		return m.of(r.Domain, r.Path, b.Rules().MetricLabel(r, d.Entries))
	default:
		h, ok := m.byRule.Load(r)
		if !ok {
			h, _ = m.byRule.LoadOrStore(r, m.of(r.Domain, r.Path, r.Path))
		}
		return h.(*hits)
	}
}
