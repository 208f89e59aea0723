package leases

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A Grant is a lease that an answer is about to hand out.
type Grant struct {
	Op           limit.Op   // that acquired it
	Back         []limit.Op // of a reservation: ops that give back what it has charged
	Domain, Rule string     // labels of metrics
}

// HeardFrom notes that a proxy has sent a call: it is not gone.
func (t *Tracker) HeardFrom(p Proxy) {
	if p.Name != "" {
		t.owners.heardFrom(p)
	}
}

// Observe notes that an op found count requests in flight under a key whose
// leases live for ttl, at an instant of the backend.
func (t *Tracker) Observe(key limit.Key, domain, rule string, ttl time.Duration, count int64, at limit.Instant) {
	t.tally.observe(key, domain, rule, ttl, count, at)
}

// ExpectLocal notes that a lease was granted by Config.Local, for at most ttl.
func (t *Tracker) ExpectLocal(ttl time.Duration) { t.store.expectLocal(ttl) }

// Sign returns the token of a lease that is granted to p. It sets l.Replica. It
// fails for a lease under too many keys.
func (t *Tracker) Sign(l *Lease, p Proxy) (string, error) {
	if p.Name != "" {
		t.owners.addGrant(p)
	}
	l.Replica = t.conf.Replica
	return t.conf.Signer.Sign(l)
}

// Abandon ends a lease in the background that nobody will use. If a repeated
// call has acquired the same lease, it stays until that call's attempt is
// abandoned or released as well. Nothing of the request's memory may be in g.
func (t *Tracker) Abandon(g *Grant) {
	op := g.Op
	op.Cost, op.Ending, op.Shadow = -1, limit.EndAttempt, true
	if len(g.Back) > 0 {
		ops := append([]limit.Op{op}, g.Back...)
		t.QueueSettlement(&Settlement{Ops: ops, Domain: g.Domain, Rule: g.Rule, Event: Cancelled})
		return
	}
	t.releaser.push(&op, g.Domain, g.Rule)
}

// Queue does an op in the background that ends a lease, and retries it until the
// lease would have expired. Nothing of the request's memory may be in the
// arguments.
func (t *Tracker) Queue(op *limit.Op, domain, rule string) { t.releaser.push(op, domain, rule) }
