package headgate

import (
	"context"
	"math"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A Lease is what a request has while it is in flight. The zero Lease has nothing to end.
type Lease struct{ of *heldLease }

// Held reports whether the lease counts: it was granted, and has not been released.
func (l Lease) Held() bool { return l.of != nil && !l.of.released.Load() }

// Release ends the lease. Further calls do nothing. If the store fails, the lease ends in
// the background, or expires.
func (l Lease) Release() {
	if l.of == nil {
		return
	}
	limiter := l.of.limiter
	c := limiter.enter()
	if c == nil {
		return // Close ends it
	}
	defer limiter.leave(c)
	if l.of.released.CompareAndSwap(false, true) {
		limiter.held.remove(l.of)
		limiter.end(context.Background(), l.of.lease)
	}
}

// Acquire is [Limiter.Check], and counts the request as one in flight by the rules that
// limit those. The caller releases the lease when the request has ended, however it did;
// until then the limiter renews it. A refused request has a lease that is not held.
func (l *Limiter) Acquire(ctx context.Context, domain string, list ...Descriptor) (lease Lease, d Decision, err error) {
	return l.acquire(ctx, domain, nil, list)
}

// acquire is Acquire for a request that reserves units if estimate is not nil.
func (l *Limiter) acquire(ctx context.Context, domain string, estimate *ratelimit.Estimate,
	list []Descriptor) (lease Lease, d Decision, err error) {
	c := l.enter()
	if c == nil {
		return Lease{}, Decision{}, ErrClosed
	}
	defer l.leave(c)
	if err := ctx.Err(); err != nil {
		return Lease{}, Decision{}, err
	}
	if estimate == nil && l.admit(ctx, c, domain, list, &d) {
		return Lease{}, d, nil
	}
	if err := c.prepare(domain, list, take); err != nil {
		return Lease{}, Decision{}, err
	}
	c.req.Estimate = estimate
	err = l.decide(ctx, c, &d)
	if ctx.Err() != nil { // nobody waits for the request any more
		l.service.Abandon(&c.resp)
		return Lease{}, d, ctx.Err()
	}
	if in := &c.resp.Inside; err == nil && len(in.Lease.Held)+len(in.Lease.Reserved) > 0 {
		lease.of = &heldLease{limiter: l, lease: in.Lease, life: shortest(&in.Lease)}
		l.held.add(lease.of, time.Now())
	}
	return lease, d, err
}

// shortest returns the life of the part of a lease that expires first.
func shortest(l *leases.Lease) time.Duration {
	life := time.Duration(math.MaxInt64)
	for i := range l.Held {
		life = min(life, l.Held[i].TTL)
	}
	for i := range l.Reserved {
		life = min(life, l.Reserved[i].TTL-descriptors.ReserveGrace)
	}
	return life
}

// end ends leases, and waits for the store no longer than Options.Timeout.
func (l *Limiter) end(ctx context.Context, list ...leases.Lease) {
	l.service.Leases().ApplyOwn(ctx, leases.Release, list...)
}

func (l *Limiter) renew(ctx context.Context, list []leases.Lease) {
	l.service.Leases().ApplyOwn(ctx, leases.Renew, list...)
}
