package ratelimit

import (
	"context"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// refund gives back what the backend charged for a request that quota mode
// refuses afterwards: it refuses when all quotas are spent, which no single limit
// knows.
func (c *call) refund(ctx context.Context, b *batch, v *limit.Verdict) {
	if v == nil || v.Err != nil || v.Recalled || b.engine.conf.ShadowMode {
		return
	}
	be, back := b.engine.conf.Backend, limit.Request{At: b.takes[c.takeIndex].At}
	if c.resp.Degraded {
		be, back.At = b.engine.conf.Local, v.At
	}
	passed, until := b.sinceAsked(back.At), maxRefund
	for i := range c.ops {
		op := c.ops[i]
		if !v.Outcomes[i].Admitted || op.Each || op.Cost <= 0 {
			continue
		}
		left := windowLeft(op.Limit, v.At)
		if left <= passed {
			continue // it would give units of the next window
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
	b.engine.ask(ctx, be, []limit.Request{back}, out)
	if err := out[0].Err; err != nil {
		b.engine.logFailure(c.req, "refund failed", err)
		c.abandonUnclear(b, err)
	}
}

// maxRefund is how long units of limits without windows can be given back.
const maxRefund = time.Hour

// sinceAsked returns an upper bound of the time since the backend was asked. at is
// the instant of the requests, 0 if the backend has a clock of its own.
func (b *batch) sinceAsked(at limit.Instant) time.Duration {
	if at == 0 {
		return time.Since(b.asked)
	}
	return time.Duration(b.engine.conf.Now()-at) * time.Microsecond
}

// windowLeft returns for how long units that l counted at an instant can be given
// back: until their window ends.
func windowLeft(l *limit.Limit, at limit.Instant) time.Duration {
	if l.Is(limit.Aligned) {
		return l.WindowEnd(at).Sub(at)
	}
	return maxRefund
}
