package ratelimit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// Inside is what a caller in this process gets with an answer, which others read in
// headers and metadata.
type Inside struct {
	// Limit is the one that refused, else the one with the least left; nil if none
	// counted. Name is the operator's name for it, possibly empty, and Rule says where it
	// is: "domain/path" or "domain/path:name".
	Limit      *limit.Limit
	Name, Rule string
	// Descriptor is the number of the request's descriptor that Limit is about, and Key that of the counter.
	Descriptor int
	Key        limit.Key
	// Remaining is how many of its units are left, and Reset is as in [Status].
	Remaining int64
	Reset     int64
	// Wait is how long to wait after a refusal: limit.Never if no wait helps.
	Wait time.Duration
	// Tier is the tier that refused, of a limit on requests in flight, and TierName its
	// name or else its threshold.
	Tier     *descriptors.Tier
	TierName string
	// Delay is how long tiers keep the request waiting that they let pass.
	Delay time.Duration
	// Chosen is, by the name of each choice, the last value of the descriptor that is charged; nil if the request is
	// refused, or chooses nothing.
	Chosen map[string]string
	// Near is the first limit that is nearly used up: "domain/path" or "domain/path:name"; empty if none is.
	Near string
	// Reserved is how many units the request has reserved.
	Reserved int64
	// Lease is what the request got. It has no keys if there is nothing to end.
	Lease leases.Lease
}

// tellInside fills the Inside of a response to a caller in this process.
func tellInside(_ *Batch, c *Call) {
	if !c.Request.InProcess {
		return
	}
	in := c.Response.inside()
	in.Reserved, in.Chosen = c.units, c.chosen()
	for i := range c.Decisions {
		if d := &c.Decisions[i]; in.Near == "" && d.Near != nil {
			in.Near = d.Near.Name
		}
	}
	if d := c.Refuses; d != nil {
		in.Wait = d.Wait
		if d.Tier != nil {
			in.Tier, in.TierName = d.Tier.Tier, d.Tier.Label
		}
	}
	if d := c.closest(); d != nil {
		in.Limit, in.Name, in.Rule, in.Remaining, in.Reset = d.Limit.Limit, d.Limit.label, d.Limit.Name, d.Left,
			d.status.Reset
		in.Descriptor = c.numberOf(d)
		if d.Counted {
			in.Key = c.Ops[d.At].Key
		}
	}
}

// numberOf returns the number of the descriptor that d is about.
func (c *Call) numberOf(d *Decision) int {
	for i := range c.Decisions {
		if d == &c.Decisions[i] {
			return i
		}
	}
	return 0
}

// keepLease hands the call's lease to a caller in this process.
func (c *Call) keepLease() {
	l := c.lease
	l.Held, l.Reserved = slices.Clone(l.Held), slices.Clone(l.Reserved)
	c.Response.inside().Lease = l
}

// errNeedsLease fails a call whose caller could not end the lease that it would get.
func errNeedsLease(rule string) *Error {
	return invalid("rule %s limits requests in flight: its requests need a lease, which ends with them", rule)
}

// Reset forgets the counters of the limits that apply to req, as if nobody had asked
// before; where policies take the place of a limit, those of every algorithm. Requests in flight stay
// counted, since they end by themselves.
func (s *Service) Reset(ctx context.Context, req *Request) error {
	b := s.batches.Get().(*Batch)
	defer s.batches.Put(b)
	defer b.release()
	var resp Response
	b.start(&s.engine, []*Request{req}, []*Response{&resp})
	if resp.Err != nil {
		return resp.Err
	}
	c := &b.calls[0]
	keys := c.resettable()
	if len(keys) == 0 {
		return nil
	}
	return errors.Join(s.conf.Backend.Forget(ctx, keys), s.conf.Local.Forget(ctx, keys))
}

// resettable returns the keys of the counters that Reset forgets.
func (c *Call) resettable() (keys []limit.Key) {
	add := func(k limit.Key) {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for i := range c.Decisions {
		d := &c.Decisions[i]
		for j := d.First; j < d.First+d.n; j++ {
			key := c.Ops[j].Key
			if c.views[j].inFlight != nil {
				continue
			}
			if c.views[j].reserved {
				add(limit.Key{Group: key.Group, Limit: limit.ReservationPart}) // else their ends would give back what is forgotten
			}
			add(key)
			if d.view.rule.Policy == nil {
				continue
			}
			for _, a := range limit.Algorithms() {
				add(limit.Key{Group: key.Group, Limit: a.KeyLetter() + key.Limit[1:]})
			}
		}
	}
	return keys
}
