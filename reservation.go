package headgate

import (
	"cmp"
	"context"
	"time"

	"github.com/headgate-rls/headgate/ratelimit"
)

// A Reservation is what a request has charged whose cost is known afterwards, by rules with
// reserve. It counts as one in flight, too, where rules limit those. The zero Reservation has
// nothing to end.
type Reservation struct{ lease Lease }

// Reserve asks whether a request may pass whose cost is known afterwards, and charges what
// rules with reserve say: amount is what it may cost, 0 if that is not known. Limits
// without reserve are charged as by [Limiter.Check]. The caller ends the reservation by Settle,
// Cancel or Release, in one of which the units are corrected. Until then the limiter renews it.
// A refused request has a reservation with nothing to end.
func (l *Limiter) Reserve(ctx context.Context, domain string, amount uint64, list ...Descriptor) (Reservation,
	Decision, error) {
	lease, d, err := l.acquire(ctx, domain, &ratelimit.Estimate{Units: amount}, list)
	return Reservation{lease}, d, err
}

// Held reports whether the reservation counts: it was granted, and has not been ended.
func (r Reservation) Held() bool { return r.lease.Held() }

// Settle ends the reservation of a request that has cost so many units: what it has reserved
// beyond them is given back, into the window that it was charged to, and what it has cost
// beyond that is charged. Further calls do nothing. If the store fails, it is settled in the background.
func (r Reservation) Settle(actual uint64) { r.end(ratelimit.Settled, actual) }

// Cancel ends the reservation of a request that has cost nothing.
func (r Reservation) Cancel() { r.end(ratelimit.Cancelled, 0) }

// Release ends the reservation of a request whose cost is not known: on_lost of the rule says
// what becomes of its units. failed says that the request has failed: then on_5xx does.
func (r Reservation) Release(failed bool) {
	if failed {
		r.end(ratelimit.Failed, 0)
		return
	}
	r.end(ratelimit.Unsettled, 0)
}

func (r Reservation) end(how ratelimit.ReservationEnd, cost uint64) {
	held := r.lease.of
	if held == nil {
		return
	}
	limiter := held.limiter
	c := limiter.enter()
	if c == nil {
		return
	}
	defer limiter.leave(c)
	if !held.released.CompareAndSwap(false, true) {
		return
	}
	limiter.held.remove(held)
	if len(held.lease.Held) > 0 {
		limiter.end(context.Background(), held.lease)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limiter.timeoutOr(time.Second))
	defer cancel()
	limiter.service.EndReservation(ctx, &held.lease, how, cost)
}

// timeoutOr returns how long a call may take, or d if the store answers at once.
func (l *Limiter) timeoutOr(d time.Duration) time.Duration { return cmp.Or(max(l.timeout, 0), d) }
