package ratelimit

import (
	"context"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// answer fills the call's response from its verdict.
func (c *call) answer(ctx context.Context, b *batch) {
	if len(c.returns) > 0 && c.resp.Err == nil {
		c.settleReturns(b)
	}
	switch {
	case c.resp.Err != nil:
	case c.takeIndex < 0:
		c.fill(ctx, b, nil)
	default:
		v := &b.verdicts[c.takeIndex]
		if v.Err != nil {
			c.abandonUnclear(b, v.Err)
			v = c.degrade(ctx, b, v.Err)
		}
		c.hideExpiry(v)
		c.fill(ctx, b, v)
		c.resp.Err = c.failure
	}
}

// fill fills the response from v, which is nil if the call has no ops.
func (c *call) fill(ctx context.Context, b *batch, v *limit.Verdict) {
	conf := &b.engine.conf
	c.countOverflow(v)
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
				if quota.outweighs(who.wait) {
					quota = who
				}
			}
		case over && enforced.outweighs(who.wait):
			enforced = who
		}
	}
	who := enforced
	if enforced.view == nil && quotaParts > 0 && quotaOver == quotaParts {
		who = quota
		c.refund(ctx, b, v)
	}
	c.resp.OverLimit = who.view != nil && !conf.ShadowMode
	if who.view != nil && conf.ShadowMode && conf.Hits != nil {
		conf.Hits.GlobalShadow()
	}
	if c.req.InProcess {
		c.tell(&who)
	}
	c.addHeaders(b, &who)
	c.addMetadata(b, &who)
	switch {
	case c.resp.OverLimit:
		if c.parts[who.part].policy != descriptors.FailDeny {
			b.tally.add(&who.view.refusals)
		}
		c.refuse(b, &who)
	case v != nil && v.Admitted:
		c.grant(b, v, c.resp.Degraded)
	}
}
