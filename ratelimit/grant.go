package ratelimit

import (
	"errors"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A request that a rule with concurrency admits gets a lease. The caller gets its
// token in dynamic_metadata, and sends it back in a descriptor when the request
// has ended (returns.go). A lease whose token the caller did not receive is
// abandoned: see [Service.Abandon] and abandonUnclear.

// inFlightRetry is the wait in refusals by limits on requests in flight. A
// request may end at any moment, but clients that do not wait push others out.
const inFlightRetry = time.Second

// grant adds the token of the leases that v grants to the response, and the delay
// of their tiers. local says that Config.Local has granted them.
func (c *call) grant(b *batch, v *limit.Verdict, local bool) {
	c.lease.Held = c.lease.Held[:0]
	var delay *tierView
	until, longest := limit.Instant(0), time.Duration(0)
	for i := range c.ops {
		lv, out := c.views[i], &v.Outcomes[i]
		if lv.inFlight == nil || c.ops[i].Cost <= 0 || !out.Admitted {
			continue
		}
		c.resp.granted = append(c.resp.granted, leases.Grant{Op: c.ops[i], Domain: lv.domain, Rule: lv.rule})
		if t := lv.tier(out); t != nil && !lv.shadow {
			t.hit()
			if t.delay != "" && (delay == nil || t.Delay > delay.Delay) {
				delay = t
			}
		}
		if out.Held {
			lv.countLease(leases.Repeated)
		} else {
			lv.countLease(leases.Acquired)
		}
		ttl := lv.inFlight.LeaseTTL
		if !local {
			b.engine.leases.Observe(c.ops[i].Key, c.req.Domain, lv.rule, ttl, out.InFlight, v.At)
		}
		longest = max(longest, ttl)
		if end := v.At.Add(ttl); until == 0 || end < until {
			until = end
		}
		if !lv.inFlight.ByHits || c.req.InProcess {
			c.lease.Held = append(c.lease.Held, leases.Held{Key: c.ops[i].Key, TTL: ttl, Rule: lv.rule})
		}
	}
	if delay != nil {
		c.resp.inside().Delay = delay.Delay
		c.resp.RequestHeaders = append(c.resp.RequestHeaders, descriptors.Header{Name: DelayHeader, Value: delay.delay})
	}
	if len(c.lease.Held) == 0 {
		return
	}
	if local {
		b.engine.leases.ExpectLocal(longest)
	}
	c.lease.Holder, c.lease.Until, c.lease.Domain = c.holder, until, c.req.Domain
	if c.req.InProcess {
		c.keepLease()
		return
	}
	c.addToken(b)
}

// addToken makes the token of the call's lease, for dynamic_metadata.
func (c *call) addToken(b *batch) {
	token, err := b.engine.leases.Sign(&c.lease, c.req.proxy())
	c.lease.Domain = "" // keeps the request's memory alive
	if err != nil {
		b.engine.abandon(c.resp)
		c.resp.Err = invalid("%v", err)
		return
	}
	key := c.req.LeaseKey
	if key == "" {
		key = DefaultLeaseKey
	}
	c.tokens = appendTextMetadata(c.tokens[:0], key, token)
}

// abandonUnclear abandons the leases of a call if the backend may have granted
// them although it failed.
func (c *call) abandonUnclear(b *batch, err error) {
	if errors.Is(err, backends.ErrNotApplied) {
		return
	}
	for i := range c.ops {
		if op := &c.ops[i]; c.views[i].inFlight != nil && op.Cost > 0 {
			b.engine.leases.Abandon(&leases.Grant{Op: *op, Domain: strings.Clone(c.req.Domain), Rule: c.views[i].rule})
		}
	}
}

// hideExpiry replaces the waits of limits on requests in flight. They say when
// leases expire, but requests end long before.
func (c *call) hideExpiry(v *limit.Verdict) {
	for i := range v.Outcomes {
		lv, out := c.views[i], &v.Outcomes[i]
		if lv.inFlight == nil {
			continue
		}
		if out.Retry == limit.Never && c.ops[i].Cost > 0 && lv.limit.Max() > 0 {
			lv.countLease(leases.Overtaken)
		}
		out.Reset = 0
		if out.Retry > 0 {
			out.Retry = inFlightRetry
		}
	}
}
