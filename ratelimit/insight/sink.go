package insight

import "github.com/headgate-rls/headgate/ratelimit"

// See implements [ratelimit.Sink]: it counts the answer, and notes who is refused, and who has little left of a limit.
func (w *Watch) See(b *ratelimit.Batch, c *ratelimit.Call) {
	w.Traffic.see(b, c)
	if c.Response.OverLimit {
		w.seeRefusal(b, c, c.Refuses)
		return
	}
	if c.Verdict == nil {
		return
	}
	for i := range c.Decisions {
		d := &c.Decisions[i]
		if !d.Counted || d.Cost <= 0 {
			continue
		}
		l, left := d.Limit.Limit, c.Verdict.Outcomes[d.At].Remaining
		if left > l.Capacity()/nearPart || d.Outcome != ratelimit.OutcomeOK {
			continue
		}
		if !w.Approach(d.Limit.Name, c.Ops[d.At].Key.Group, b.Instant(), l, left) {
			s := seen(b, c, d, d.At)
			w.AddNear(&s, left)
		}
	}
}

// seeRefusal counts a refusal, and records it if there is time.
func (w *Watch) seeRefusal(b *ratelimit.Batch, c *ratelimit.Call, d *ratelimit.Decision) {
	at := d.First
	if d.Counted {
		at = d.At
	}
	kept, record := w.Refuse(d.Limit.Name, c.Ops[at].Key.Group, b.Instant())
	if kept && !record {
		return
	}
	s := seen(b, c, d, at)
	if !kept {
		record = w.AddRefused(&s) || record
	}
	if !record {
		return
	}
	r := Refusal{Wait: d.Wait, Cause: "limit", RequestID: c.Request.RequestID}
	switch {
	case d.Tier != nil:
		r.Cause, r.Tier = "tier", d.Tier.Label
	case d.Cause != nil:
		r.Cause = d.Cause.Label
	}
	w.Record(&s, r)
}

// seen is the descriptor of a decision, and the limit of one of its ops.
func seen(b *ratelimit.Batch, c *ratelimit.Call, d *ratelimit.Decision, at int) Seen {
	return Seen{Domain: c.Request.Domain, Entries: d.Entries, Rule: d.Limit.Name, Limit: d.Limit.Limit,
		Group: c.Ops[at].Key.Group, At: b.Instant()}
}
