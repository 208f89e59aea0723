package ratelimit

import (
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

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
