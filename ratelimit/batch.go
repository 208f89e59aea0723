package ratelimit

import (
	"fmt"
	"math"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/lease"
)

// A batch is the requests of one Decide and the memory to decide them in.
type batch struct {
	s     *Service
	rules *ruleset

	calls    []call
	takes    []limit.Request
	ending   bool // some call brings leases back
	verdicts []limit.Verdict
	asked    time.Time // when takes were sent to a backend that is not local
}

// A call is one request on its way to its response.
type call struct {
	req   *Request
	resp  *Response
	parts []part       // one per descriptor
	ops   []limit.Op   // of all parts, in order
	views []*limitView // of ops
	cause *cause       // why policies answer, nil if they do not
	take  int          // index into batch.takes, -1 if there are no ops

	failure *Error // what the caller gets in place of an answer, by policy

	// Requests in flight.
	holder  string      // of the leases that the call gets
	token   lease.Lease // they
	tokens  []byte      // encoded metadata with their token
	endings []ending    // leases that the call brings back
	ends    []limit.Op  // what to do about them
	endTake int         // index into batch.takes of the first of endings that has any
}

// A part is what the rules say about one descriptor.
type part struct {
	view      *ruleView // nil if no rule applies
	match     descriptors.Match
	unlimited bool
	first, n  int // its ops in call.ops

	// policy is what answers instead of the counters, zero if they do.
	policy descriptors.FailurePolicy
	ending bool // it brings a lease back
}

// start matches every request and collects what to ask the backend.
func (b *batch) start(s *Service, reqs []*Request, resps []*Response) {
	b.s, b.rules = s, s.rules.Load()
	b.calls = grow(b.calls, len(reqs))
	b.takes, b.ending = b.takes[:0], false
	for i := range reqs {
		c := &b.calls[i]
		c.req, c.resp, c.take, c.holder = reqs[i], resps[i], -1, ""
		c.cause, c.failure = nil, nil
		c.ops, c.views, c.ends, c.endings = c.ops[:0], c.views[:0], c.ends[:0], c.endings[:0]
		c.resp.reset(len(c.req.Descriptors))
		if o := reqs[i].owner(); o.name != "" && (i == 0 || o != reqs[i-1].owner()) {
			s.owners.heardFrom(o)
		}
		if c.resp.Err = c.plan(b); c.resp.Err != nil {
			continue
		}
		c.addEndings(b)
		if len(c.ops) > 0 {
			c.take = len(b.takes)
			b.takes = append(b.takes, limit.Request{Ops: c.ops})
		}
	}
	b.verdicts = grow(b.verdicts, len(b.takes))
	if !s.conf.Caps.ServerClock && len(b.takes) > 0 {
		now := s.conf.Now()
		for i := range b.takes {
			b.takes[i].At = now
		}
	}
}

// release drops what a pooled batch must not keep alive.
func (b *batch) release() {
	for i := range b.calls {
		c := &b.calls[i]
		if i >= keptLarge && c.req.size > smallMessage {
			*c = call{}
			continue
		}
		c.req, c.resp = nil, nil
		clear(c.parts)
		clear(c.ops)
		clear(c.views)
		clear(c.ends)
		clear(c.token.Held)
	}
	clear(b.takes)
	b.s, b.rules = nil, nil
}

// grow returns s with length n, keeping the elements' memory.
func grow[T any](s []T, n int) []T {
	if n > cap(s) {
		s = append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

func invalid(format string, args ...any) *Error {
	return &Error{Code: codeInvalid, Message: fmt.Sprintf(format, args...)}
}

// plan finds the rules and ops for the call's descriptors.
func (c *call) plan(b *batch) *Error {
	if c.req.Domain == "" {
		return invalid("rate limit domain must not be empty")
	}
	if len(c.req.Descriptors) == 0 {
		return invalid("rate limit descriptor list must not be empty")
	}
	c.parts = grow(c.parts, len(c.req.Descriptors))
	replacing := false
	for i := range c.req.Descriptors {
		if err := c.match(b, i); err != nil {
			return err
		}
		if v := c.parts[i].view; v != nil && len(v.rule.Replaces) > 0 {
			replacing = true
		}
	}
	for i := range c.parts {
		if err := c.addOps(b, i, replacing); err != nil {
			return err
		}
	}
	if most := b.s.conf.Caps.MaxOps; len(c.ops) > most {
		return invalid("the request's descriptors meet %d limits, at most %d", len(c.ops), most)
	}
	return nil
}

// match finds what applies to descriptor i.
func (c *call) match(b *batch, i int) *Error {
	d, p := &c.req.Descriptors[i], &c.parts[i]
	*p = part{}
	for j := range d.Entries {
		if d.Entries[j].Key == "" {
			return invalid("descriptors[%d].entries[%d].key must not be empty", i, j)
		}
	}
	if len(d.Entries) > 0 && d.Entries[0].Key == OpKey {
		p.ending = true
		return c.endOps(b, i)
	}
	b.rules.set.Match(c.req.Domain, d.Entries, &p.match)
	if d.HasOverride && p.match.Domain {
		view, err := b.s.overrides.get(d.Override, &b.s.conf)
		if err != nil {
			return invalid("descriptors[%d].limit: %v", i, err)
		}
		p.view, p.match.Group = view, overrideGroup(c.req.Domain, d.Entries)
		return nil
	}
	if r := p.match.Rule; r != nil {
		p.view, p.unlimited = &b.rules.views[r.ID], r.Unlimited
	}
	return nil
}

// overrideGroup names the counters of a limit that the caller brought along.
func overrideGroup(domain string, entries []descriptors.Entry) string {
	var buf [limit.MaxGroupLen]byte
	b := limit.AppendPart(buf[:0], domain)
	for i := range entries {
		b = limit.AppendPart(b, entries[i].Key)
		b = limit.AppendPart(b, entries[i].Value)
	}
	return limit.MakeGroup(b)
}

// addOps adds an op for each limit of part i that no other rule replaces.
func (c *call) addOps(b *batch, i int, replacing bool) *Error {
	p := &c.parts[i]
	p.first, p.n = len(c.ops), 0
	if p.view == nil || p.unlimited {
		return nil
	}
	cost := c.req.cost(&c.req.Descriptors[i])
	for j := range p.view.limits {
		lv := &p.view.limits[j]
		if replacing && c.replaced(lv.label) {
			continue
		}
		if cost < 0 && lv.inFlight != nil && !lv.inFlight.ByHits {
			return invalid("descriptors[%d]: requests under rule %s end by their lease (release: lease), not by a negative hits_addend", i, lv.name)
		}
		c.views = append(c.views, lv)
		c.ops = append(c.ops, limit.Op{
			Key:   limit.Key{Group: p.match.Group, Limit: lv.keyPart},
			Limit: lv.limit,
			Cost:  cost,
			// Quota mode is settled after the fact, in answer.
			Shadow: lv.shadow || p.view.quota || b.s.conf.ShadowMode,
			Each:   p.view.each,
			Share:  lv.share,
		})
		if lv.inFlight != nil {
			c.leaseOp(&c.ops[len(c.ops)-1])
		}
		p.n++
	}
	return nil
}

// replaced says whether some rule that applies replaces limits called name.
func (c *call) replaced(name string) bool {
	if name == "" {
		return false
	}
	for i := range c.parts {
		if v := c.parts[i].view; v != nil {
			for _, r := range v.rule.Replaces {
				if r == name {
					return true
				}
			}
		}
	}
	return false
}

// maxCost keeps costs well below what arithmetic bears; no limit is as large.
const maxCost = limit.MaxUnits + 1

// cost returns how many hits d stands for: its own, if it says, where zero
// asks without taking; else the request's, where zero means one.
func (r *Request) cost(d *Descriptor) int64 {
	hits := uint64(max(r.Hits, 1))
	if d.HasHits {
		hits = d.Hits
	}
	cost := int64(maxCost)
	if hits < math.MaxInt64 {
		cost = min(int64(hits), maxCost)
	}
	if d.Refund {
		return -cost
	}
	return cost
}
