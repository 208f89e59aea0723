package headgate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A heldLease is a lease that the limiter renews until it is released.
type heldLease struct {
	limiter  *Limiter
	lease    leases.Lease
	life     time.Duration
	due      time.Time // to be renewed; guarded by held.mu
	released atomic.Bool
}

// held are the leases of requests in flight. There are as many as requests.
type held struct {
	mu   sync.Mutex
	all  map[*heldLease]struct{}
	next time.Time     // when the next one is due; zero means none
	wake chan struct{} // next is earlier than it was
}

// A lease is renewed after a third of its life, or up to a twelfth earlier: so leases are
// looked through rarely, and renewed many at a time.
const (
	renewalsPerLife = 3
	slackPerLife    = 12
)

func (h *held) add(l *heldLease, now time.Time) {
	l.due = now.Add(l.life / renewalsPerLife)
	h.mu.Lock()
	if h.all == nil {
		h.all = map[*heldLease]struct{}{}
	}
	h.all[l] = struct{}{}
	sooner := h.next.IsZero() || l.due.Before(h.next)
	if sooner {
		h.next = l.due
	}
	h.mu.Unlock()
	if sooner {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

func (h *held) remove(l *heldLease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, l)
}

// takeAll releases all leases.
func (h *held) takeAll() (list []leases.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.all {
		if l.released.CompareAndSwap(false, true) {
			list = append(list, l.lease)
		}
	}
	h.all = nil
	return list
}

// due returns the leases to renew now, and when to look again: zero if there are none.
func (h *held) due(now time.Time) (list []leases.Lease, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = time.Time{}
	for l := range h.all {
		if !l.due.After(now.Add(l.life / slackPerLife)) {
			l.due = now.Add(l.life / renewalsPerLife)
			list = append(list, l.lease)
		}
		if h.next.IsZero() || l.due.Before(h.next) {
			h.next = l.due
		}
	}
	return list, h.next
}

// run renews leases until ctx ends.
func (h *held) run(ctx context.Context, renew func(context.Context, []leases.Lease)) {
	for {
		list, next := h.due(time.Now())
		if len(list) > 0 {
			renew(ctx, list)
		}
		var timer <-chan time.Time // never, if there are none
		if !next.IsZero() {
			timer = time.After(max(time.Until(next), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-timer:
		}
	}
}
