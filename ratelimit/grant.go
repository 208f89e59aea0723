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

// openReturn reads the token in descriptor i, and makes the ops that it asks for.
func (c *call) openReturn(b *batch, i int) *Error {
	d := &c.req.Descriptors[i]
	action := leases.Action(d.Entries[0].Value)
	if !action.Valid() {
		return invalid("descriptors[%d]: %s must be %q or %q, not %q", i, OpKey, leases.Release, leases.Renew, action)
	}
	if len(d.Entries) != 2 || d.Entries[1].Key != LeaseEntry {
		return invalid("descriptors[%d]: %s must be followed by one entry, %s", i, OpKey, LeaseEntry)
	}
	if len(c.returns) >= leases.MaxHeld {
		return invalid("a request may have at most %d leases", leases.MaxHeld)
	}
	c.returns = grow(c.returns, len(c.returns)+1)
	if err := b.engine.leases.Open(c.req.Domain, d.Entries[1].Value, action, &c.returns[len(c.returns)-1]); err != nil {
		return invalid("descriptors[%d]: %v", i, err)
	}
	return nil
}

// addReturns adds a request for each lease that came back. Each is a request of
// its own, so that the lease ends even if the rest of the call is refused.
func (c *call) addReturns(b *batch) {
	c.firstReturn = len(b.takes)
	for i := range c.returns {
		if ops := c.returns[i].Ops; len(ops) > 0 {
			b.returns = true
			b.takes = append(b.takes, limit.Request{Ops: ops})
		}
	}
}

// settleReturns passes the verdicts on leases that came back to the tracker.
func (c *call) settleReturns(b *batch) {
	at := c.firstReturn
	for i := range c.returns {
		if r := &c.returns[i]; len(r.Ops) > 0 {
			b.engine.leases.Settle(c.req.Domain, r, &b.verdicts[at])
			at++
		}
	}
}
