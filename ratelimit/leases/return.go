package leases

import (
	"context"
	"errors"
	"slices"

	"github.com/headgate-rls/headgate/limit"
)

// An Action is what is done to a lease whose token has come back.
type Action string

// The actions.
const (
	// Release ends the lease.
	Release Action = "release"
	// End is Release for callers that report each end a second time: a lease that has ended before is not an event.
	End Action = "end"
	// Renew moves the lease's end away.
	Renew Action = "renew"
)

// Valid reports whether a is one of the actions.
func (a Action) Valid() bool { return a == Release || a == End || a == Renew }

// A Return is a lease whose token has come back, and what is to be done to it.
type Return struct {
	Lease
	Ops   []limit.Op // that do an action
	rules []string   // of Ops
	// Settling ends reservations.
	Settling []Settlement
}

// Owner returns whose lease it is, zero if that is unknown.
func (r *Return) Owner() OwnerID { return ownerOf(r.Holder) }

// Clear drops everything but the memory.
func (r *Return) Clear() {
	clear(r.Held)
	clear(r.Ops)
	clear(r.rules)
	clear(r.Reserved)
	clear(r.Settling)
	r.Lease, r.Ops, r.rules = Lease{Held: r.Held[:0], Reserved: r.Reserved[:0]}, r.Ops[:0], r.rules[:0]
	r.Settling = r.Settling[:0]
}

// ErrNoHolder is the error for a token whose lease has no holder: it would end other requests' leases.
var ErrNoHolder = errors.New("the lease token has no holder")

// Open reads a token into r, reusing its memory. A token that this signer did not make is
// counted and logged under domain, and r is empty then. The error is ErrNoHolder or nil.
func (t *Tracker) Open(domain, token string, r *Return) error {
	r.Clear()
	if err := t.conf.Signer.Parse(token, &r.Lease); err != nil {
		t.conf.Metrics.Lease("", "").At(int(Unknown)).Inc()
		if errors.Is(err, limit.ErrLater) {
			t.warn("release with a lease token of a later version of headgate: the lease expires by itself", "domain", domain)
			return nil
		}
		t.warn("release with an unknown lease token: do all replicas have the same lease secret?", "domain", domain)
		return nil
	}
	if r.Holder == "" {
		return ErrNoHolder
	}
	t.owners.addReturn(r.Owner())
	return nil
}

// Do makes the ops that do an action. The caller asks the backend and then calls
// [Tracker.Settle]. Reservations are only renewed: they end by a [Settlement].
func (t *Tracker) Do(a Action, r *Return) {
	r.addOps(a)
	if a != Renew {
		return
	}
	for i := range r.Reserved {
		if one := &r.Reserved[i]; t.due(&r.Lease, one) {
			op := one.Ending(r.Holder, limit.EndLease)
			op.Cost = 0
			r.Ops, r.rules = append(r.Ops, op), append(r.rules, one.Rule)
		}
	}
}

// addOps adds the ops that do an action to r's leases.
func (r *Return) addOps(a Action) {
	cost, ending := int64(-1), limit.EndLease
	switch a {
	case End:
		ending = limit.EndKnown
	case Renew:
		cost = 0
	}
	for i := range r.Held {
		h := &r.Held[i]
		r.Ops = append(r.Ops, limit.Op{Key: h.Key, Limit: lifeLimit(h.TTL), Cost: cost, Holder: r.Holder, Ending: ending,
			Shadow: true})
		r.rules = append(r.rules, h.Rule)
	}
}

// Settle takes over the backend's verdict on r's ops. It counts what became of the lease under the domain that granted
// it, and queues what the backend could not do. domain is for logs.
func (t *Tracker) Settle(domain string, r *Return, v *limit.Verdict) {
	t.noteReturn(r)
	if v.Err != nil {
		t.QueueReturn(r)
		t.warn("leases could not be released; headgate retries until they expire", "domain", domain, "error", v.Err)
		return
	}
	t.store.takeLocal(r.Ops)
	gone := Unknown
	if v.At >= r.Until {
		gone = Expired
	}
	for i := range r.Ops {
		t.record(&r.Ops[i], &v.Outcomes[i], r.Domain, r.rules[i], gone, v.At)
	}
}

// noteReturn says that r ends or renews a lease.
func (t *Tracker) noteReturn(r *Return) {
	if t.conf.Returned != nil && len(r.Ops) > 0 {
		t.conf.Returned(r.Holder, r.Ops[0].Cost == 0)
	}
}

// QueueReturn does r's ops in the background, and retries them until the lease would have expired.
func (t *Tracker) QueueReturn(r *Return) {
	t.noteReturn(r)
	t.store.takeLocal(r.Ops)
	for i := range r.Ops {
		t.releaser.push(&r.Ops[i], r.Domain, r.rules[i])
	}
}

// maxOwnersReturned bounds what Apply returns: an access log is of one proxy.
const maxOwnersReturned = 16

// Apply does an action to the leases of tokens, which may be anything. What the backend cannot do before ctx's deadline
// is done in the background. domain is for logs. Apply returns whose leases they are, each owner once, in no order.
func (t *Tracker) Apply(ctx context.Context, domain string, a Action, tokens []string) (owners []OwnerID) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.store.timeout)
		defer cancel()
	}
	for batch := range slices.Chunk(tokens, batchSize) {
		for _, owner := range t.applyBatch(ctx, domain, a, batch) {
			if !slices.Contains(owners, owner) && len(owners) < maxOwnersReturned {
				owners = append(owners, owner)
			}
		}
	}
	return owners
}

// applyBatch asks the backend once.
func (t *Tracker) applyBatch(ctx context.Context, domain string, a Action, tokens []string) (owners []OwnerID) {
	list := make([]Return, 0, len(tokens))
	for _, token := range tokens {
		var r Return
		if err := t.Open(domain, token, &r); err != nil {
			continue
		}
		if owner := r.Owner(); owner != (OwnerID{}) {
			owners = append(owners, owner)
		}
		list = append(list, r)
	}
	t.applyAll(ctx, domain, a, list)
	return owners
}

// applyAll asks the backend once, with each lease as a request of its own: a
// lease has few ops, but several may have more than a request may have.
func (t *Tracker) applyAll(ctx context.Context, domain string, a Action, list []Return) {
	reqs := make([]limit.Request, 0, len(list))
	for i := range list {
		t.Do(a, &list[i])
		if len(list[i].Ops) > 0 {
			list[len(reqs)], reqs = list[i], append(reqs, limit.Request{Ops: list[i].Ops})
		}
	}
	if len(reqs) == 0 {
		return
	}
	out := make([]limit.Verdict, len(reqs))
	t.store.take(ctx, reqs, out)
	for i := range out {
		t.Settle(domain, &list[i], &out[i])
	}
}

// ApplyOwn does an action to leases that this process keeps itself, as [Tracker.Apply] does by their tokens.
func (t *Tracker) ApplyOwn(ctx context.Context, a Action, list ...Lease) {
	for batch := range slices.Chunk(list, batchSize) {
		returns := make([]Return, len(batch))
		for i := range batch {
			returns[i].Lease = batch[i]
		}
		ctx, cancel := context.WithTimeout(ctx, t.store.timeout)
		t.applyAll(ctx, batch[0].Domain, a, returns)
		cancel()
	}
}

// Watch notes that an access log is open that has reported leases of the owner's, until closed is called.
func (t *Tracker) Watch(owner OwnerID) (closed func()) {
	if !t.owners.watch(owner) {
		return func() {}
	}
	return func() { t.owners.unwatch(owner) }
}
