package ratelimit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// lives caches limits that only say how long a lease lives.
var lives sync.Map // time.Duration to *limit.Limit

// lifeOf returns a limit under which leases are counted, renewed and ended.
func lifeOf(ttl time.Duration) *limit.Limit {
	if l, ok := lives.Load(ttl); ok {
		return l.(*limit.Limit)
	}
	ttl = min(max(ttl, limit.MinWindow), limit.MaxWindow).Truncate(time.Microsecond)
	l, _ := lives.LoadOrStore(ttl, limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: ttl}))
	return l.(*limit.Limit)
}

// takeOps does each op as a request of its own.
func (s *Service) takeOps(ctx context.Context, ops []limit.Op) []limit.Verdict {
	out := make([]limit.Verdict, len(ops))
	if len(ops) == 0 {
		return out
	}
	reqs := make([]limit.Request, len(ops))
	var at limit.Instant
	if !s.conf.Caps.ServerClock {
		at = s.conf.Now()
	}
	for i := range ops {
		reqs[i] = limit.Request{Ops: ops[i : i+1 : i+1], At: at}
	}
	ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout)
	defer cancel()
	s.conf.Backend.Take(ctx, reqs, out)
	return out
}

// Leases granted by failure policy local are held on this process's memory.

func (s *Service) heldLocally(ttl time.Duration) {
	until := time.Now().Add(ttl).UnixNano()
	for {
		old := s.localUntil.Load()
		if old >= until || s.localUntil.CompareAndSwap(old, until) {
			return
		}
	}
}

func (s *Service) localLeases() bool { return time.Now().UnixNano() < s.localUntil.Load() }

// endLocally does the ops on this process's memory, where they may be about
// nothing.
func (s *Service) endLocally(ops []limit.Op) {
	out := make([]limit.Verdict, 1)
	s.conf.Local.Take(context.Background(), []limit.Request{{Ops: ops, At: s.conf.Now()}}, out)
}

// Close gives back what is owed, until ctx ends. Decide is not called after it.
func (s *Service) Close(ctx context.Context) { s.returns.close(ctx) }

// leaseSlice is how many leases Lease asks the backend for in one call.
const leaseSlice = 256

// Lease ends (OpRelease) or renews (OpRenew) the leases of tokens, as calls
// with such descriptors do, each for itself: a token's limits are few, those of
// several tokens may be more than a request may have. What the backend cannot
// do before ctx's deadline is done later. The domain is for logs. Lease returns
// whose leases they are, each owner once, in no order.
func (s *Service) Lease(ctx context.Context, domain, op string, tokens []string) (owners []OwnerID) {
	for part := range slices.Chunk(tokens, leaseSlice) {
		reqs, resps := make([]*Request, len(part)), make([]*Response, len(part))
		for i, token := range part {
			d := Descriptor{Entries: []descriptors.Entry{{Key: OpKey, Value: op}, {Key: LeaseEntry, Value: token}}}
			reqs[i], resps[i] = &Request{Domain: domain, Descriptors: []Descriptor{d}}, new(Response)
		}
		s.Decide(ctx, reqs, resps)
		for _, r := range resps {
			if r.owner != (OwnerID{}) && !slices.Contains(owners, r.owner) && len(owners) < maxOwnersTold {
				owners = append(owners, r.owner)
			}
		}
	}
	return owners
}

// maxOwnersTold bounds what Lease returns: an access log is of one proxy.
const maxOwnersTold = 16

// Watch says that an access log is open that has brought leases of the owner's;
// the returned function, that it is closed.
func (s *Service) Watch(owner OwnerID) (closed func()) {
	if !s.owners.watch(owner) {
		return func() {}
	}
	return func() { s.owners.unwatch(owner) }
}
