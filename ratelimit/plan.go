package ratelimit

import (
	"math"
	"slices"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// plan finds the rules and ops for the call's descriptors.
func (c *Call) plan(b *Batch) *Error {
	if c.Request.Domain == "" {
		return invalid("rate limit domain must not be empty")
	}
	if len(c.Request.Descriptors) == 0 {
		return invalid("rate limit descriptor list must not be empty")
	}
	c.Decisions = grow(c.Decisions, len(c.Request.Descriptors))
	if e := c.Request.Estimate; e != nil {
		c.estimate = int64(min(e.Units, maxCost))
	}
	replacing, choosing := false, false
	for i := range c.Request.Descriptors {
		if err := c.match(b, i); err != nil {
			return err
		}
		if v := c.Decisions[i].view; v != nil {
			replacing = replacing || len(v.rule.Replaces) > 0
			choosing = choosing || v.rule.Choose != ""
		}
	}
	if choosing {
		c.findChoices()
	}
	for i := range c.Decisions {
		if err := c.addOps(b, i, replacing); err != nil {
			return err
		}
	}
	if len(c.choices) > 0 {
		if err := c.addChoices(b); err != nil {
			return err
		}
	}
	for i := range c.returns {
		c.endLease(b, i)
	}
	return nil
}

// match finds what applies to descriptor i.
func (c *Call) match(b *Batch, i int) *Error {
	d, p := &c.Request.Descriptors[i], &c.Decisions[i]
	p.Entries, p.status = d.Entries, &c.Response.Statuses[i] // the rest is zero: see release
	if !c.recall(b.rules.set, i) {
		if err := c.look(b, i); err != nil || p.returns {
			return err
		}
	}
	if d.HasOverride && p.match.Domain {
		var rule *ruleView
		if r := p.match.Rule; r != nil {
			rule = b.rules.views[r.ID]
		}
		view, err := b.engine.overrides.get(d.Override, rule, &b.engine.conf)
		if err != nil {
			return invalid("descriptors[%d].limit: %v", i, err)
		}
		p.view = view
		if b.engine.conf.Caps.PlainWindows {
			p.match.Group = descriptors.TextGroup(c.Request.Domain, nil, d.Entries)
		} else if !view.sharesCounter {
			p.match.Group = overrideGroup(c.Request.Domain, d.Entries)
		}
		return nil
	}
	if r := p.match.Rule; r != nil {
		p.view, p.unlimited = b.rules.views[r.ID], r.Unlimited
		if len(r.By) > 0 {
			b.warnOfNoAddress(p.view, d.Entries)
		}
		if p.view.policies != nil {
			p.policies = p.view.policies
			view, decider := p.policies.view(b.policies, d.Entries)
			p.view, p.decider = view, int32(decider)
		}
		if b.engine.conf.Caps.PlainWindows {
			p.match.Group = descriptors.TextGroup(c.Request.Domain, r, d.Entries)
		}
	}
	return nil
}

// look matches descriptor i, or reads the token in it.
func (c *Call) look(b *Batch, i int) *Error {
	d, p := &c.Request.Descriptors[i], &c.Decisions[i]
	for j := range d.Entries {
		if d.Entries[j].Key == "" {
			return invalid("descriptors[%d].entries[%d].key must not be empty", i, j)
		}
	}
	if len(d.Entries) > 0 && d.Entries[0].Key == OpKey {
		p.returns = true
		return c.openReturn(b, i)
	}
	if b.rules.awaited {
		return errAwaited
	}
	b.rules.set.Match(c.Request.Domain, d.Entries, &p.match)
	c.keepMatch(b.rules.set, i)
	return nil
}

// overrideGroup returns the group of the counters of an override.
func overrideGroup(domain string, entries []descriptors.Entry) string {
	var buf [limit.MaxGroupLen]byte
	b := limit.AppendPart(buf[:0], domain)
	for i := range entries {
		b = limit.AppendPart(b, entries[i].Key)
		b = limit.AppendPart(b, entries[i].Value)
	}
	return limit.MakeGroup(b)
}

// addOps adds an op for each limit of descriptor i that no other rule replaces.
func (c *Call) addOps(b *Batch, i int, replacing bool) *Error {
	p := &c.Decisions[i]
	p.First, p.n = len(c.Ops), 0
	if p.view == nil || p.unlimited {
		return nil
	}
	d := &c.Request.Descriptors[i]
	cost, named := c.Request.cost(d), c.Request.names(d)
	p.Cost = cost
	if p.view.keys != nil {
		b.budgetKey(p)
	}
	how := c.reserving(d, p.view)
	switch {
	case c.Request.Purpose == Commits && p.view.reserve != nil && c.hasToken():
		return nil // the token says what becomes of the reservation
	case how == reports:
		c.report(b, i)
		return nil
	case how == charges && p.view.reserve != nil:
		b.engine.noteUnasked(c.Request, d, p.view)
	}
	named = named && how != reserves // what a question names is no cost
	for j := range p.view.limits {
		lv := &p.view.limits[j]
		if replacing && c.replaced(lv.label) || lv.inFlight != nil && c.Request.Purpose == Commits {
			continue
		}
		if cost < 0 && lv.inFlight != nil && !lv.inFlight.ByHits {
			return invalid("descriptors[%d]: rule %s releases requests by lease (release: lease), not by a negative hits_addend",
				i, lv.Name)
		}
		if most := b.engine.conf.Caps.MaxOps; len(c.Ops) == most {
			return tooManyOps(most)
		}
		c.views = append(c.views, lv)
		c.Ops = append(c.Ops, limit.Op{})
		b.engine.conf.setOp(&c.Ops[len(c.Ops)-1], p.view, lv, p.match.Group, cost, named)
		if c.Request.done() && cost > 0 {
			b.engine.conf.chargeDone(&c.Ops[len(c.Ops)-1])
		}
		if lv.inFlight != nil {
			if c.Request.NoLease && cost > 0 {
				return errNeedsLease(lv.Name)
			}
			c.leaseOp(&c.Ops[len(c.Ops)-1])
		}
		p.n++
	}
	if how == reserves {
		return c.reserve(b, i, p.First)
	}
	return nil
}

func tooManyOps(most int) *Error { return invalid("the descriptors match more than %d limits", most) }

// setOp has an op, which is zero but for what this sets, be about a limit of a rule. named says whether the caller
// names the cost.
func (conf *Config) setOp(op *limit.Op, v *ruleView, lv *LimitView, group string, cost int64, named bool) {
	op.Key.Group, op.Key.Limit, op.Limit, op.Cost = group, lv.keyPart, lv.Limit, cost
	// Quota mode is settled after the fact, in answer.
	op.Shadow = lv.Shadow || v.quota || conf.ShadowMode
	op.Each = v.each || named && lv.Limit.Overflow() != limit.Refuse && !conf.AsReference
}

// chargeDone has op charge work that is done, whatever becomes of others: a limit that refuses takes what is left, if
// the backend keeps such a limit.
func (conf *Config) chargeDone(op *limit.Op) {
	if op.Limit.Overflow() != limit.Refuse {
		return
	}
	if with, err := op.Limit.WithOverflow(limit.Saturate, 0); err == nil && conf.Caps.Check(with) == nil {
		op.Limit, op.Each = with, true
	}
}

// replaced reports whether a rule that applies replaces limits called name.
func (c *Call) replaced(name string) bool {
	if name == "" {
		return false
	}
	for i := range c.Decisions {
		if v := c.Decisions[i].view; v != nil {
			for _, r := range v.rule.Replaces {
				if r == name {
					return true
				}
			}
		}
	}
	return false
}

// maxCost bounds costs. It is larger than any limit, and cannot overflow.
const maxCost = limit.MaxUnits + 1

// names reports whether the caller names the hits of d, as one does who reports what a
// response has cost. Limits that overflow charge those each for itself: what is
// reported is done, whatever other limits say.
func (r *Request) names(d *Descriptor) bool { return d.HasHits || r.Hits > 0 }

// hasToken reports whether the call brings a token back that can be read.
func (c *Call) hasToken() bool {
	return slices.ContainsFunc(c.returns, func(r leases.Return) bool { return r.Holder != "" })
}

// done reports whether the hits are of work that is done.
func (r *Request) done() bool { return r.Purpose == Reports || r.Purpose == Commits }

// asks reports whether d asks without taking.
func (d *Descriptor) asks() bool { return d.HasHits && d.Hits == 0 }

// cost returns the hits of d: its own if it has any, where zero asks without
// taking; else those of the request, where zero means one.
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

// leaseOp sets the holder of an op of a rule that limits requests in flight.
func (c *Call) leaseOp(op *limit.Op) {
	if c.holder == "" {
		c.holder = leases.Holder(c.Request.Domain, c.Request.ID, c.Request.proxy())
	}
	if op.Cost > 0 {
		op.Holder = c.holder
	}
}
