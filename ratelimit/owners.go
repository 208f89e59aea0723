package ratelimit

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// Leases of a proxy that is gone go before they lapse, if its access log was
// connected: see Present. Every replica asks the backend which of the owners
// that it granted leases to are still present, and ends the leases of those
// that were and are no longer.

// Bounds of what is remembered of owners and of the keys they may hold.
const (
	maxOwners = 4096
	maxRecent = 1 << 14
)

// makeRoom drops an entry of m if it has as many as it may.
func makeRoom[K comparable, V any](m map[K]V, most int) {
	if len(m) < most {
		return
	}
	for k := range m {
		delete(m, k)
		return
	}
}

// lives caches limits that only say how long a lease lives.
var lives sync.Map // time.Duration to *limit.Limit

// lifeOf returns a limit under which leases are renewed and ended.
func lifeOf(ttl time.Duration) *limit.Limit {
	if l, ok := lives.Load(ttl); ok {
		return l.(*limit.Limit)
	}
	ttl = min(max(ttl, limit.MinWindow), limit.MaxWindow).Truncate(time.Microsecond)
	l, _ := lives.LoadOrStore(ttl, limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: ttl}))
	return l.(*limit.Limit)
}

// owners are the proxies that leases were granted to.
type owners struct {
	mu   sync.Mutex
	seen map[string]*owner
}

type owner struct {
	last    limit.Instant // when it got a lease last
	present bool          // its access log was connected when we asked last
}

// saw notes that an owner got a lease. At the bound others are forgotten, and
// their leases are left to lapse.
func (o *owners) saw(name string, at limit.Instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.seen[name]; s != nil {
		s.last = at
		return
	}
	if o.seen == nil {
		o.seen = map[string]*owner{}
	}
	makeRoom(o.seen, maxOwners)
	o.seen[strings.Clone(name)] = &owner{last: at}
}

func (o *owners) names() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.seen))
}

// is notes whether an owner is present now, and tells whether it has left. One
// that got a lease within the grace has not: a proxy that was idle connects its
// access log again only when it has something to tell.
func (o *owners) is(name string, present bool, now limit.Instant, grace, longest time.Duration) (left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.seen[name]
	if s == nil {
		return false
	}
	if s.present && !present && s.last.Add(grace) > now {
		return false
	}
	left = s.present && !present
	s.present = present
	if !present && (left || s.last.Add(longest) < now) {
		delete(o.seen, name)
	}
	return left
}

// recent are the keys under which leases were granted.
type recent struct {
	mu   sync.Mutex
	keys map[limit.Key]*recentKey
}

type recentKey struct {
	domain, rule string
	ttl          time.Duration
	last         limit.Instant
}

func (r *recent) saw(key limit.Key, domain, rule string, ttl time.Duration, at limit.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.keys[key]; k != nil {
		k.last = at
		return
	}
	if r.keys == nil {
		r.keys = map[limit.Key]*recentKey{}
	}
	makeRoom(r.keys, maxRecent)
	key.Group = strings.Clone(key.Group)
	r.keys[key] = &recentKey{domain: strings.Clone(domain), rule: rule, ttl: ttl, last: at}
}

// ops returns an op for each key that may still have leases.
func (r *recent) ops(now limit.Instant, op limit.Op) (ops []limit.Op, of []recentKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, k := range r.keys {
		if k.last.Add(2*k.ttl) < now {
			delete(r.keys, key)
			continue
		}
		op.Key, op.Limit = key, lifeOf(k.ttl)
		ops, of = append(ops, op), append(of, *k)
	}
	return ops, of
}

// presenceOp is about the access logs of an owner that are connected, to
// whichever replica.
func (s *Service) presenceOp(owner string) limit.Op {
	group := limit.MakeGroup(limit.AppendPart(limit.AppendPart(nil, "headgate presence"), owner))
	return limit.Op{Key: limit.Key{Group: group, Limit: "p"}, Limit: lifeOf(s.conf.OwnerGrace)}
}

// Present says that an owner's access log, which has the given name, is
// connected. It holds for Config.OwnerGrace.
func (s *Service) Present(ctx context.Context, owner, accessLog string) error {
	op := s.presenceOp(owner)
	op.Holder = accessLog
	out := s.takeOps(ctx, []limit.Op{op}) // renews
	if out[0].Err == nil && !out[0].Outcomes[0].Held {
		op.Cost = 1
		out = s.takeOps(ctx, []limit.Op{op})
	}
	return out[0].Err
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
	s.takeAll(ctx, reqs, out)
	for i := range ops {
		s.takeRest(ctx, reqs[i], &out[i])
	}
	return out
}

func (s *Service) takeAll(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout)
	defer cancel()
	s.conf.Backend.Take(ctx, reqs, out)
}

// takeRest repeats a request of one op until nothing of it is left to be done.
// The verdict says whether any of the repetitions found a lease.
func (s *Service) takeRest(ctx context.Context, req limit.Request, v *limit.Verdict) {
	op := &req.Ops[0]
	for {
		rest, more := op.Rest(v)
		if !more {
			return
		}
		held, out := v.Outcomes[0].Held, make([]limit.Verdict, 1)
		s.takeAll(ctx, []limit.Request{{Ops: []limit.Op{rest}, At: req.At}}, out)
		*v, op = out[0], &rest
		if v.Err == nil {
			v.Outcomes[0].Held = v.Outcomes[0].Held || held
		}
	}
}

// Run ends the leases of owners that are gone, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	tick := time.NewTicker(s.conf.OwnerGrace / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.lookForOwners(ctx)
		}
	}
}

func (s *Service) lookForOwners(ctx context.Context) {
	names := s.owners.names()
	ops := make([]limit.Op, len(names))
	for i, name := range names {
		ops[i] = s.presenceOp(name)
	}
	for i, v := range s.takeOps(ctx, ops) {
		if v.Err != nil {
			continue
		}
		if s.owners.is(names[i], v.Outcomes[0].InFlight > 0, v.At, s.conf.OwnerGrace, s.longestLease()) {
			s.endOwner(ctx, names[i], v.At)
		}
	}
}

// longestLease bounds for how long an owner is watched after its last lease.
func (s *Service) longestLease() time.Duration { return 2 * s.rules.Load().longest }

// endOwner ends all leases of an owner under the keys that are known here.
func (s *Service) endOwner(ctx context.Context, name string, now limit.Instant) {
	ops, of := s.recent.ops(now, limit.Op{Cost: -1, Holder: ownerPrefix(name), Ending: limit.EndOwner})
	failed := 0
	for i, v := range s.takeOps(ctx, ops) {
		if v.Err != nil {
			failed++
			s.returns.push(&ops[i], of[i].domain, of[i].rule)
		}
	}
	s.conf.Log.Warn("a proxy whose access log was connected is gone; its requests in flight are ended",
		"owner", name, "grace", s.conf.OwnerGrace, "keys", len(ops), "to_be_repeated", failed)
}

// An InFlight is how many requests are in flight under a rule's key.
type InFlight struct {
	Domain, Rule string
	Count        int64
}

// InFlight returns, summed by rule, how many requests are in flight under the
// keys that this process knows: all replicas' together, and those that lapse.
func (s *Service) InFlight(ctx context.Context) ([]InFlight, error) {
	var now limit.Instant
	if !s.conf.Caps.ServerClock {
		now = s.conf.Now()
	} else {
		now = limit.InstantOf(time.Now())
	}
	ops, of := s.recent.ops(now, limit.Op{})
	sums := map[[2]string]int64{}
	for i, v := range s.takeOps(ctx, ops) {
		if v.Err != nil {
			return nil, v.Err
		}
		sums[[2]string{of[i].domain, of[i].rule}] += v.Outcomes[0].InFlight
	}
	list := make([]InFlight, 0, len(sums))
	for k, n := range sums {
		list = append(list, InFlight{Domain: k[0], Rule: k[1], Count: n})
	}
	slices.SortFunc(list, func(a, b InFlight) int {
		return strings.Compare(a.Domain+"\x00"+a.Rule, b.Domain+"\x00"+b.Rule)
	})
	return list, nil
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
// do before ctx's deadline is done later. The domain is for logs.
func (s *Service) Lease(ctx context.Context, domain, op string, tokens []string) {
	for part := range slices.Chunk(tokens, leaseSlice) {
		reqs, resps := make([]*Request, len(part)), make([]*Response, len(part))
		for i, token := range part {
			d := Descriptor{Entries: []descriptors.Entry{{Key: OpKey, Value: op}, {Key: LeaseEntry, Value: token}}}
			reqs[i], resps[i] = &Request{Domain: domain, Descriptors: []Descriptor{d}}, new(Response)
		}
		s.Decide(ctx, reqs, resps)
	}
}
