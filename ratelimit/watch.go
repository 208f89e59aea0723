package ratelimit

import "github.com/headgate-rls/headgate/ratelimit/insight"

// watchKeys notes who is refused, and who has little left of a limit.
func watchKeys(b *batch, c *call) {
	if c.resp.OverLimit {
		c.watchRefusal(b, c.refuses)
		return
	}
	if c.verdict == nil {
		return
	}
	for i := range c.decisions {
		d := &c.decisions[i]
		if !d.counted || d.cost <= 0 {
			continue
		}
		l, left := d.limit.limit, c.verdict.Outcomes[d.at].Remaining
		if left > l.Capacity()/insight.NearPart || d.outcome != OutcomeOK {
			continue
		}
		if w := b.engine.watch; !w.Approach(d.limit.name, c.ops[d.at].Key.Group, b.instant(), l, left) {
			s := c.seen(b, d, d.at)
			w.AddNear(&s, left)
		}
	}
}

// watchRefusal counts a refusal, and records it if there is time.
func (c *call) watchRefusal(b *batch, d *decision) {
	w, at := b.engine.watch, d.first
	if d.counted {
		at = d.at
	}
	kept, record := w.Refuse(d.limit.name, c.ops[at].Key.Group, b.instant())
	if kept && !record {
		return
	}
	s := c.seen(b, d, at)
	if !kept {
		record = w.AddRefused(&s) || record
	}
	if !record {
		return
	}
	r := insight.Refusal{Wait: d.wait, Cause: "limit", RequestID: c.req.RequestID}
	switch {
	case d.tier != nil:
		r.Cause, r.Tier = "tier", d.tier.label
	case d.cause != nil:
		r.Cause = d.cause.label
	}
	w.Record(&s, r)
}

// seen is the descriptor of a decision, and the limit of one of its ops.
func (c *call) seen(b *batch, d *decision, at int) insight.Seen {
	return insight.Seen{Domain: c.req.Domain, Entries: d.entries, Rule: d.limit.name, Limit: d.limit.limit,
		Group: c.ops[at].Key.Group, At: b.instant()}
}

// countTraffic counts the answers.
func countTraffic(b *batch, c *call) {
	t := &b.engine.traffic
	if len(c.decisions) == 0 {
		return // nothing was asked that can be decided
	}
	t.Seen(b.instant())
	b.tally.add(&t.Answers)
	if c.resp.OverLimit {
		b.tally.add(&t.Refused)
	}
	if c.resp.Degraded {
		b.tally.add(&t.ByPolicy)
	}
}

// Traffic returns how many calls this process has answered.
func (s *Service) Traffic() *insight.Traffic { return &s.traffic }

// Watch returns who is refused and who is near a limit, as this process has seen it.
func (s *Service) Watch() *insight.Watch { return s.watch }
