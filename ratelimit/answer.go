package ratelimit

import (
	"context"
	"math"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// answer fills the call's response from its verdict.
func (c *call) answer(ctx context.Context, b *batch) {
	if len(c.endings) > 0 && c.resp.Err == nil {
		c.ended(b)
	}
	switch {
	case c.resp.Err != nil:
	case c.take < 0:
		c.fill(ctx, b, nil)
	default:
		v := &b.verdicts[c.take]
		if v.Err != nil {
			c.unsure(b, v.Err)
			v = c.degrade(ctx, b, v.Err)
		}
		c.temper(v)
		c.fill(ctx, b, v)
		c.resp.Err = c.failure
	}
}

// A refusal is the limit that refuses a request, if one does.
type refusal struct {
	part int
	view *limitView
	tier *tierView     // of a limit on requests in flight
	wait time.Duration // limit.Never if no wait helps
}

// worse says whether a refusal with wait weighs more than the one so far.
func (r *refusal) worse(wait time.Duration) bool {
	return r.view == nil || (r.wait != limit.Never && (wait == limit.Never || wait > r.wait))
}

// fill makes the statuses, settles quota mode, and says who refused.
func (c *call) fill(ctx context.Context, b *batch, v *limit.Verdict) {
	conf := &b.s.conf
	var enforced, quota refusal
	quotaParts, quotaOver := 0, 0
	for i := range c.parts {
		p := &c.parts[i]
		who := c.status(b, i, v)
		over := c.resp.Statuses[i].OverLimit
		inQuota := conf.QuotaMode || (p.view != nil && p.view.quota)
		switch {
		case inQuota:
			quotaParts++
			if over {
				quotaOver++
				if quota.worse(who.wait) {
					quota = who
				}
			}
		case over && enforced.worse(who.wait):
			enforced = who
		}
	}
	who := enforced
	if enforced.view == nil && quotaParts > 0 && quotaOver == quotaParts {
		who = quota
		c.giveBack(ctx, b, v)
	}
	c.resp.OverLimit = who.view != nil && !conf.ShadowMode
	c.addHeaders(b, &who)
	c.addMetadata(b, &who)
	switch {
	case c.resp.OverLimit:
		if c.parts[who.part].policy != descriptors.FailDeny {
			who.view.refusals.Inc()
		}
		c.refuse(b, &who)
	case v != nil && v.Admitted:
		c.grant(b, v, c.resp.Degraded)
	}
}

// status fills the status of part i, counts it, and returns the limit that
// decided it.
func (c *call) status(b *batch, i int, v *limit.Verdict) refusal {
	p, st := &c.parts[i], &c.resp.Statuses[i]
	outcome := OutcomeOK
	who := refusal{part: i}
	switch {
	case p.ending:
		return who
	case p.view == nil:
		c.countUnmatched(b, p)
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
	p.view.count(b.s, b.rules.set, &c.req.Descriptors[i], outcome)
	return who
}

func (c *call) countUnmatched(b *batch, p *part) {
	domain := "" // an unknown one is the caller's text: no label
	if p.match.Domain {
		domain = c.req.Domain
	}
	b.s.conf.Metrics.Rule(domain, "")[OutcomeNoRule].Inc()
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
	st.limit, st.Remaining, st.Reset = view, clampUint32(out.Remaining), seconds(wait)
	st.OverLimit = !out.Admitted && !view.shadow
	who := refusal{part: i, view: view, tier: view.tier(out), wait: out.Retry}
	switch {
	case !out.Admitted && !st.OverLimit, shadowed && out.Admitted:
		return OutcomeShadow, who
	case st.OverLimit && b.s.conf.ShadowMode:
		return OutcomeShadow, who
	case st.OverLimit:
		return OutcomeOverLimit, who
	}
	return OutcomeOK, who
}

// decisive returns the index of the op that speaks for part p: of those that
// refuse, the one with the longest wait; else the one with the least left.
// Shadow limits speak only where there are no others; shadowed says whether
// one of them would have refused.
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

// giveBack undoes what a request charged that is refused after all: quota mode
// refuses when every quota is spent, which no single limit can tell.
func (c *call) giveBack(ctx context.Context, b *batch, v *limit.Verdict) {
	if v == nil || v.Err != nil || b.s.conf.ShadowMode {
		return
	}
	be, back := b.s.conf.Backend, limit.Request{At: b.takes[c.take].At}
	if c.resp.Degraded {
		be, back.At = b.s.conf.Local, v.At
	}
	passed, until := b.sinceAsked(back.At), maxGiveBack
	for i := range c.ops {
		op := c.ops[i]
		if !v.Outcomes[i].Admitted || op.Each || op.Cost <= 0 {
			continue
		}
		left := windowLeft(op.Limit, v.At)
		if left <= passed {
			continue // in the next window it would make room that there is not
		}
		op.Cost = -op.Cost
		back.Ops, until = append(back.Ops, op), min(until, left)
	}
	if len(back.Ops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, until-passed)
	defer cancel()
	out := make([]limit.Verdict, 1)
	b.s.take(ctx, be, []limit.Request{back}, out)
	if err := out[0].Err; err != nil {
		b.s.logFailure(c.req.Domain, "could not give back what a refused request had taken", err)
		c.unsure(b, err)
	}
}

// maxGiveBack is longer than anything is given back for.
const maxGiveBack = time.Hour

// sinceAsked returns how long ago a backend was asked at most, for requests at an
// instant: 0 is that of the backend's own clock.
func (b *batch) sinceAsked(at limit.Instant) time.Duration {
	if at == 0 {
		return time.Since(b.asked)
	}
	return time.Duration(b.s.conf.Now()-at) * time.Microsecond
}

// windowLeft returns how long, from an instant, units that l counted then can be
// given back: until their window ends.
func windowLeft(l *limit.Limit, at limit.Instant) time.Duration {
	switch l.Algorithm() {
	case limit.FixedWindow, limit.SlidingWindow:
		return l.Window() - time.Duration(int64(at)%l.Window().Microseconds())*time.Microsecond
	}
	return maxGiveBack
}

// seconds rounds a wait up to whole seconds, the unit of Envoy's headers.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
