package insight

import "github.com/headgate-rls/headgate/ratelimit"

// An Insight is what one process has seen: it goes into [ratelimit.Config].Sinks.
type Insight struct {
	*Watch
	Traffic Traffic
}

// New returns an insight that has seen nothing.
func New() *Insight { return &Insight{Watch: NewWatch()} }

// See implements [ratelimit.Sink]: it counts the answer, and notes who is refused, and who has little left of a limit.
func (in *Insight) See(b *ratelimit.Batch, c *ratelimit.Call) {
	in.Traffic.see(b, c)
	if c.Response.OverLimit {
		in.seeRefusal(b, c, c.Refuses)
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
		if !in.Approach(d.Limit.Name, c.Ops[d.At].Key.Group, b.Instant(), l, left) {
			s := seen(b, c, d, d.At)
			in.AddNear(&s, left)
		}
	}
}

// seeRefusal counts a refusal, and records it if there is time.
func (in *Insight) seeRefusal(b *ratelimit.Batch, c *ratelimit.Call, d *ratelimit.Decision) {
	at := d.First
	if d.Counted {
		at = d.At
	}
	kept, record := in.Refuse(d.Limit.Name, c.Ops[at].Key.Group, b.Instant())
	if kept && !record {
		return
	}
	s := seen(b, c, d, at)
	if !kept {
		record = in.AddRefused(&s) || record
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
	in.Record(&s, r)
}

// seen is the descriptor of a decision, and the limit of one of its ops.
func seen(b *ratelimit.Batch, c *ratelimit.Call, d *ratelimit.Decision, at int) Seen {
	return Seen{Domain: c.Request.Domain, Entries: d.Entries, Rule: d.Limit.Name, Limit: d.Limit.Limit,
		Group: c.Ops[at].Key.Group, At: b.Instant()}
}
