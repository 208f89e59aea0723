package ratelimit

import (
	"math"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// status fills the status of part i, counts it, and returns the limit that
// decided it.
func (c *call) status(b *batch, i int, v *limit.Verdict) refusal {
	p, st := &c.parts[i], &c.resp.Statuses[i]
	var outcome Outcome
	who := refusal{part: i}
	switch {
	case p.returns:
		return who
	case p.view == nil:
		c.countNoRule(b, p)
		return who
	case p.unlimited:
		st.Remaining = math.MaxUint32
		outcome = OutcomeUnlimited
	case p.n == 0: // exempt, or every limit replaced
		outcome = OutcomeUnlimited
	case p.policy == descriptors.FailDeny:
		st.OverLimit, st.limit, st.Reset = true, c.views[p.first], 1
		outcome, who.view, who.wait = c.cause.outcomes[p.policy], c.views[p.first], time.Second
	case p.policy == descriptors.FailAllow, p.policy == descriptors.FailError:
		outcome = c.cause.outcomes[p.policy]
	default:
		outcome, who = c.decided(b, i, v)
	}
	c.countHits(b, i, v)
	if p.policies != nil {
		c.countByPolicy(b, i, outcome, v)
	}
	b.tally.add(p.view.counter(b.engine.conf.Metrics, b.rules.set, c.req.Descriptors[i].Entries, outcome))
	return who
}

// countByPolicy counts part i for the policy that decided it.
func (c *call) countByPolicy(b *batch, i int, o Outcome, v *limit.Verdict) {
	p := &c.parts[i]
	recorder := p.policies.recorder(b.policies, c.req.Descriptors[i].Entries, p.decider)
	if recorder == nil {
		return
	}
	remaining, most := int64(0), int64(0)
	if p.n > 0 && (o == OutcomeOK || o == OutcomeOverLimit || o == OutcomeShadow) {
		remaining, most = v.Outcomes[p.first].Remaining, c.views[p.first].limit.Capacity()
	}
	b.byPolicy.add(recorder, o, remaining, most)
}

// countOverflow counts the hits that limits took although they did not fit.
func (c *call) countOverflow(v *limit.Verdict) {
	if v == nil || v.Err != nil {
		return
	}
	for i := range v.Outcomes {
		if n := v.Outcomes[i].Taken; n > 0 {
			c.views[i].overflow.Count(n)
		}
	}
}

func (c *call) countNoRule(b *batch, p *part) {
	domain := "" // an unknown one is the caller's text: no label
	if p.match.Domain {
		domain = c.req.Domain
	} else {
		b.engine.unknown.log(&b.engine.conf, c.req.Domain, b.rules.set)
	}
	b.tally.add(&b.engine.conf.Metrics.Rule(domain, "")[OutcomeNoRule])
}

// decided fills the status of part i from the outcome that matters most.
func (c *call) decided(b *batch, i int, v *limit.Verdict) (Outcome, refusal) {
	p, st := &c.parts[i], &c.resp.Statuses[i]
	at, shadowed := c.decisive(p, v)
	out, view := &v.Outcomes[at], c.views[at]
	wait := out.Reset
	if !out.Admitted && out.Retry != limit.Never {
		wait = out.Retry
	}
	st.limit, st.Remaining, st.Reset = view, clampUint32(out.Remaining), units.CeilSeconds(wait)
	st.OverLimit = !out.Admitted && !view.shadow
	who := refusal{part: i, view: view, tier: view.tier(out), wait: out.Retry}
	switch {
	case !out.Admitted && !st.OverLimit, shadowed && out.Admitted:
		return OutcomeShadow, who
	case st.OverLimit && b.engine.conf.ShadowMode:
		return OutcomeShadow, who
	case st.OverLimit:
		return OutcomeOverLimit, who
	}
	return OutcomeOK, who
}

// decisive returns the index of the op whose limit the status of part p shows: of
// the limits that refuse, the one with the longest wait; else the one with the
// least left. It is a shadow limit only if the part has no others. shadowed says
// whether a shadow limit would have refused.
func (c *call) decisive(p *part, v *limit.Verdict) (best int, shadowed bool) {
	best = -1
	for at := p.first; at < p.first+p.n; at++ {
		if c.views[at].shadow && !v.Outcomes[at].Admitted {
			shadowed = true
		}
		if best < 0 || c.outranks(v, at, best) {
			best = at
		}
	}
	return best, shadowed
}

func (c *call) outranks(v *limit.Verdict, a, b int) bool {
	x, y := &v.Outcomes[a], &v.Outcomes[b]
	switch {
	case c.views[a].shadow != c.views[b].shadow:
		return c.views[b].shadow
	case x.Admitted != y.Admitted:
		return !x.Admitted
	case !x.Admitted:
		return y.Retry != limit.Never && (x.Retry == limit.Never || x.Retry > y.Retry)
	}
	return x.Remaining < y.Remaining
}
