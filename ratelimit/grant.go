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
func (c *Call) grant(b *Batch, v *limit.Verdict, local bool) {
	c.lease.Held, c.lease.Reserved, c.lease.Granted = c.lease.Held[:0], c.lease.Reserved[:0], v.At
	var delay *TierView
	until, longest := limit.Instant(0), time.Duration(0)
	for i := range c.Ops {
		lv, out := c.views[i], &v.Outcomes[i]
		if lv.inFlight == nil || c.Ops[i].Cost <= 0 || !v.Charged(c.Ops, i) {
			continue
		}
		c.Response.granted = append(c.Response.granted, leases.Grant{Op: c.Ops[i], Domain: lv.domain, Rule: lv.rule})
		if t := lv.tier(out); t != nil && !lv.Shadow {
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
			b.engine.leases.Observe(c.Ops[i].Key, c.Request.Domain, lv.rule, ttl, out.InFlight, v.At)
		}
		longest = max(longest, ttl)
		if end := v.At.Add(ttl); until == 0 || end < until {
			until = end
		}
		if !lv.inFlight.ByHits || c.Request.InProcess {
			c.lease.Held = append(c.lease.Held, leases.Held{Key: c.Ops[i].Key, TTL: ttl, Rule: lv.rule})
		}
	}
	if delay != nil {
		c.Response.inside().Delay = delay.Delay
		c.Response.RequestHeaders = append(c.Response.RequestHeaders,
			descriptors.Header{Name: DelayHeader, Value: delay.delay})
	}
	c.lease.Until = until
	if len(c.reserved) > 0 && !local {
		c.keepReservations(b, v)
	}
	if len(c.lease.Held)+len(c.lease.Reserved) == 0 {
		return
	}
	if local && len(c.lease.Held) > 0 {
		b.engine.leases.ExpectLocal(longest)
	}
	c.lease.Holder, c.lease.Domain = c.holder, c.Request.Domain
	if c.Request.InProcess {
		c.keepLease()
		return
	}
	c.addToken(b)
}

// addToken makes the token of the call's lease, for dynamic_metadata.
func (c *Call) addToken(b *Batch) {
	token, err := b.engine.leases.Sign(&c.lease, c.Request.proxy())
	if err != nil && len(c.lease.Reserved) > 0 {
		// The charge stays: to fail the call would be to let the request pass.
		for i := range c.lease.Reserved {
			b.engine.conf.Metrics.Reservation(c.Request.Domain, c.lease.Reserved[i].Rule).At(int(leases.Unkept)).Inc()
		}
		c.lease.Reserved = c.lease.Reserved[:0]
		if len(c.lease.Held) == 0 {
			return
		}
		token, err = b.engine.leases.Sign(&c.lease, c.Request.proxy())
	}
	c.lease.Domain = "" // keeps the request's memory alive
	if err != nil {
		b.engine.Abandon(c.Response)
		c.Response.Err = invalid("%v", err)
		return
	}
	if c.Request.Purpose == Holds {
		c.Response.Token = token
		return
	}
	key := c.Request.LeaseKey
	if key == "" {
		key = DefaultLeaseKey
	}
	c.Response.token = b.engine.conf.Encoder.AppendText(c.Response.token[:0], key, token)
}

// abandonUnclear abandons the leases of a call if the backend may have granted
// them although it failed.
func (c *Call) abandonUnclear(b *Batch, err error) {
	if errors.Is(err, backends.ErrNotApplied) {
		return
	}
	for i := range c.reserved {
		r := &c.reserved[i]
		view, op := c.Decisions[r.decision].view, c.Ops[r.op]
		b.engine.leases.Abandon(&leases.Grant{Op: op, Domain: view.rule.Domain, Rule: view.rule.Path,
			Back: view.corrections(nil, op.Key.Group, b.engine.enforced(view), 0, limit.AsLeased)})
	}
	for i := range c.Ops {
		if op := &c.Ops[i]; c.views[i].inFlight != nil && op.Cost > 0 {
			b.engine.leases.Abandon(&leases.Grant{Op: *op, Domain: strings.Clone(c.Request.Domain), Rule: c.views[i].rule})
		}
	}
}

// hideExpiry replaces the waits of limits on requests in flight. They say when
// leases expire, but requests end long before.
func (c *Call) hideExpiry(v *limit.Verdict) {
	for i := range v.Outcomes {
		lv, out := c.views[i], &v.Outcomes[i]
		if lv.inFlight == nil {
			continue
		}
		if out.Retry == limit.Never && c.Ops[i].Cost > 0 && lv.Limit.Max() > 0 {
			lv.countLease(leases.Overtaken)
		}
		out.Reset = 0
		if out.Retry > 0 {
			out.Retry = inFlightRetry
		}
	}
	for i := range c.reserved {
		if out := &v.Outcomes[c.reserved[i].op]; out.Retry > 0 {
			out.Reset, out.Retry = 0, inFlightRetry
		}
	}
}

// Operations on a lease, as the entry OpKey names them, beside those of package leases.
const (
	opEstimate = "estimate" // its hits are what the request may cost
	opSettle   = "settle"   // its hits are what the request has cost
	opOutcome  = "outcome"  // its hits are the status of the response
)

// openReturn reads what descriptor i says of the call's cost, or of a token that comes back.
func (c *Call) openReturn(b *Batch, i int) *Error {
	d := &c.Request.Descriptors[i]
	op := d.Entries[0].Value
	switch op {
	case opEstimate:
		c.estimate = max(c.estimate, c.Request.cost(d))
		return nil
	case opSettle, opOutcome, string(leases.Release), string(leases.End), string(leases.Renew):
	default:
		return invalid("descriptors[%d]: %s must be %q, %q, %q, %q or %q, not %q", i, OpKey, leases.Release, leases.Renew,
			opEstimate, opSettle, opOutcome, op)
	}
	if len(d.Entries) != 2 || d.Entries[1].Key != LeaseEntry {
		return invalid("descriptors[%d]: %s must be followed by one entry, %s", i, OpKey, LeaseEntry)
	}
	end, err := c.endOf(b, i, d.Entries[1].Value)
	if err != nil {
		return err
	}
	switch op {
	case opSettle:
		if !c.Request.names(d) || d.Refund {
			return invalid("descriptors[%d]: %s: %s needs hits, and not negative ones: what the request has cost", i, OpKey, op)
		}
		end.settles, end.cost = true, max(end.cost, c.Request.cost(d))
	case opOutcome:
		if d.HasHits {
			end.status = d.Hits
		}
		end.failed = end.status >= 500
	default:
		end.action = leases.Action(op)
	}
	return nil
}

// endOf returns what the call says of a token, which it opens if it is new.
func (c *Call) endOf(b *Batch, i int, token string) (*tokenEnd, *Error) {
	for j := range c.ends {
		if c.ends[j].token == token {
			return &c.ends[j], nil
		}
	}
	if len(c.returns) >= leases.MaxHeld {
		return nil, invalid("a request may have at most %d leases", leases.MaxHeld)
	}
	c.returns = grow(c.returns, len(c.returns)+1)
	if err := b.engine.leases.Open(c.Request.Domain, token, &c.returns[len(c.returns)-1]); err != nil {
		c.returns = c.returns[:len(c.returns)-1]
		return nil, invalid("descriptors[%d]: %v", i, err)
	}
	c.ends = append(c.ends, tokenEnd{token: token})
	return &c.ends[len(c.ends)-1], nil
}

// endLease makes the ops that do what the call says of the i-th token.
func (c *Call) endLease(b *Batch, i int) {
	r, end := &c.returns[i], &c.ends[i]
	if end.action != "" {
		b.engine.leases.Do(end.action, r)
	}
	if end.action != leases.Renew && r.Holder != "" {
		c.endReservations(b, r, end)
	}
}

// addReturns adds a request for each lease that came back. Each is a request of
// its own, so that the lease ends even if the rest of the call is refused.
func (c *Call) addReturns(b *Batch) {
	c.firstReturn = len(b.takes)
	for i := range c.returns {
		if ops := c.returns[i].Ops; len(ops) > 0 {
			b.returns = true
			b.takes = append(b.takes, limit.Request{Ops: ops})
		}
	}
}

// settleReturns passes the verdicts on leases that came back to the tracker.
func (c *Call) settleReturns(b *Batch) {
	at := c.firstReturn
	for i := range c.returns {
		if r := &c.returns[i]; len(r.Ops) > 0 {
			b.engine.leases.Settle(c.Request.Domain, r, &b.verdicts[at])
			at++
		}
	}
}
