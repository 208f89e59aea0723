package ratelimit

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A rule with reserve charges units when a request asks, and keeps a reservation beside
// them. The end of the request settles it: docs/tokens.md has the wire.

// A reserveView is how requests under a rule reserve, prepared for answers.
type reserveView struct {
	*descriptors.Reserve
	lease LimitView // that keeps the reservations
	use   *reserveUse
}

// reservations is the name of the limit on a key's open reservations.
const reservations = "reservations"

// newReserveView prepares how requests under v reserve; nil if they do not. A request that finds as many open
// reservations of its key as the budget has room for min is refused; if the store keeps fewer, the request has none,
// and stays charged.
func newReserveView(v *ruleView, conf *Config) *reserveView {
	r := v.rule
	if r.Reserve == nil {
		return nil
	}
	most := min(conf.Caps.Algorithms[limit.Concurrency].MaxUnits, limit.MaxInFlight)
	bound, bounded := v.openReservations()
	bounded = bounded && bound <= most
	if bounded {
		most = bound
	}
	if r.Reserve.On429 == descriptors.FullExhaust {
		v.exhaust(conf)
	}
	l := limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: most, Window: r.Reserve.KeptFor()})
	lease := newLimitView(r, &descriptors.RuleLimit{Limit: l, KeyPart: limit.ReservationPart, Name: reservations,
		Shadow: !bounded}, conf)
	lease.domain, lease.rule = r.Domain, r.Path
	return &reserveView{r.Reserve, lease, new(reserveUse)}
}

// openReservations returns how many reservations of a key may be open, false if any number may. Where a window ends
// while reservations are open, the counters alone would not bound them.
func (v *ruleView) openReservations() (most int64, bounded bool) {
	r := v.rule.Reserve
	if r.By != descriptors.ReserveAuto {
		return 0, false
	}
	for i := range v.limits {
		if lv := &v.limits[i]; lv.reserved && !lv.Shadow {
			n := max(lv.Limit.Capacity()/r.Min, 1)
			if !bounded || n < most {
				most, bounded = n, true
			}
		}
	}
	return most, bounded
}

// exhaust prepares the limit of v of which a request can take what is left, if the backend keeps such a limit: the one
// that has room again first. A provider that is full for a minute says nothing about a day.
func (v *ruleView) exhaust(conf *Config) {
	var first *LimitView
	for i := range v.limits {
		if lv := &v.limits[i]; lv.reserved && (first == nil || lv.Limit.Window() < first.Limit.Window()) {
			first = lv
		}
	}
	if first == nil {
		return
	}
	if with, err := first.Limit.WithOverflow(limit.Saturate, 0); err == nil && conf.Caps.Check(with) == nil {
		first.full = with
	}
}

// A reserving says what a descriptor does under a rule with reserve.
type reserving uint8

const (
	charges  reserving = iota // its hits, as under other rules
	reserves                  // what its request may cost
	reports                   // what its request has cost
)

// reserving says what descriptor d does under a rule.
func (c *Call) reserving(d *Descriptor, v *ruleView) reserving {
	r, named := v.reserve, c.Request.names(d)
	switch {
	case r == nil || d.Refund && r.Report != descriptors.ReportDifference:
	case c.Request.InProcess && c.Request.Estimate == nil:
	case c.Request.InProcess && (!named || !c.Request.Estimate.AsSent):
		return reserves
	case r.Match == descriptors.MatchOldest && c.reports(d, r):
		return reports
	case c.Request.NoLease:
	case r.Match == descriptors.MatchOldest && c.asks(d, r), r.Match == descriptors.MatchToken && !named,
		c.Request.Purpose == Holds:
		return reserves
	}
	return charges
}

// asks reports whether d asks, under a rule whose reservations a report settles.
func (c *Call) asks(d *Descriptor, r *reserveView) bool {
	switch {
	case c.Request.Purpose != ByHits:
		return !c.Request.done()
	case d.Refund:
		return false
	case r.Ask == descriptors.AskOne:
		return c.Request.cost(d) == 1
	}
	return r.Ask == descriptors.AskEstimate || d.asks()
}

// reports reports whether d reports, under a rule whose reservations a report settles.
func (c *Call) reports(d *Descriptor, r *reserveView) bool {
	return !c.asks(d, r) && (c.Request.names(d) || d.Refund)
}

// estimateOf returns what descriptor d estimates, 0 if it does not.
func (c *Call) estimateOf(d *Descriptor, r *reserveView) int64 {
	if r.Ask == descriptors.AskEstimate && c.Request.Purpose == ByHits && c.Request.names(d) {
		return c.Request.cost(d)
	}
	return c.estimate
}

// A reserved is a reservation that the call asks for.
type reserved struct {
	decision int
	op       int // that keeps it, in call.ops
	units    int64
}

// reserve makes the ops from first on, of decision i, reserve units, and adds the op that
// keeps the reservation.
func (c *Call) reserve(b *Batch, i, first int) *Error {
	p := &c.Decisions[i]
	r := p.view.reserve
	units := r.amount(b.engine, p.match.Group, c.estimateOf(&c.Request.Descriptors[i], r))
	r.use.asked()
	any := false
	for at := first; at < len(c.Ops); at++ {
		if op, lv := &c.Ops[at], c.views[at]; lv.reserved {
			op.Cost, op.Limit, op.Each, any = units, op.Limit.Strict(), false, true
		}
	}
	if !any {
		return nil
	}
	if most := b.engine.conf.Caps.MaxOps; len(c.Ops) == most {
		return tooManyOps(most)
	}
	if c.holder == "" {
		c.holder = leases.Holder(c.Request.Domain, c.Request.ID, c.Request.proxy())
	}
	p.keeps = len(c.Ops)
	c.reserved = append(c.reserved, reserved{i, p.keeps, units})
	c.views = append(c.views, &r.lease)
	c.Ops = append(c.Ops, limit.Op{
		Key: limit.Key{Group: p.match.Group, Limit: limit.ReservationPart}, Limit: r.lease.Limit, Cost: 1,
		Shadow: r.lease.Shadow || p.view.quota || b.engine.conf.ShadowMode,
		Holder: limit.WithAmount(c.holder, units),
	})
	return nil
}

// crowded reports whether d's request is refused because its key has as many open reservations as it may.
func (c *Call) crowded(d *Decision) bool {
	return d.keeps > 0 && !c.views[d.keeps].Shadow && !c.Response.Degraded && !c.Verdict.Outcomes[d.keeps].Admitted
}

// report adds a settlement of the oldest reservation of decision i's key, and of those that were asked for with it.
func (c *Call) report(b *Batch, i int) {
	p := &c.Decisions[i]
	p.reports = true
	s, asOf := settling{view: p.view, decision: i, cost: p.Cost}, limit.AsLeased
	if p.view.reserve.Report == descriptors.ReportDifference {
		s.cost, asOf = -1, limit.AsLeasedBeyond
	}
	s.Settlement = p.view.settlingOldest(p.match.Group, p.Cost, asOf)
	c.settle(s)
	for _, t := range b.rules.together.with(p.match.Group) {
		if !c.isAbout(t.group) {
			beside := t.view.settlingOldest(t.group, 0, limit.AsLeased)
			beside.Beside = true
			c.settle(settling{view: t.view, decision: -1, cost: -1, Settlement: beside})
		}
	}
}

// settlingOldest returns the settlement of the oldest reservation of a key.
func (v *ruleView) settlingOldest(group string, cost int64, asOf limit.Instant) leases.Settlement {
	r := v.reserve
	ops := []limit.Op{leases.EndingOldest(limit.Key{Group: group, Limit: limit.ReservationPart}, r.KeptFor())}
	return leases.Settlement{Ops: v.corrections(ops, group, nil, cost, asOf), Domain: r.lease.domain, Rule: r.lease.rule,
		Event: leases.Settled}
}

// isAbout reports whether some descriptor of the call counts under a group.
func (c *Call) isAbout(group string) bool {
	return slices.ContainsFunc(c.Decisions, func(d Decision) bool { return d.match.Group == group })
}

// corrections appends the ops that correct what the rule's limits have been charged: those
// with a key part in parts, or all if parts is nil.
func (v *ruleView) corrections(ops []limit.Op, group string, parts []string, cost int64,
	asOf limit.Instant) []limit.Op {
	ops = slices.Grow(ops, len(v.limits))
	for i := range v.limits {
		lv := &v.limits[i]
		if lv.reserved && (parts == nil || slices.Contains(parts, lv.keyPart)) {
			key := limit.Key{Group: group, Limit: lv.keyPart}
			ops = append(ops, limit.Op{Key: key, Limit: lv.Limit, Cost: cost, AsOf: asOf})
		}
	}
	return ops
}

// A settling is a settlement on its way to its verdict.
type settling struct {
	leases.Settlement
	view     *ruleView // nil if the rule is gone
	decision int       // that reports; -1 if a token came back
	cost     int64     // -1: unknown
}

func (c *Call) settle(s settling) { c.settling = append(c.settling, s) }

// addSettlements adds a request for each settlement.
func (c *Call) addSettlements(b *Batch) {
	c.firstSettling = len(b.takes)
	for i := range c.settling {
		b.returns = true
		b.takes = append(b.takes, limit.Request{Ops: c.settling[i].Ops})
	}
}

// noteSettlements passes on the verdicts on settlements. What the backend could not do is
// done in the background, but for reports: whether they were counted is not known.
func (c *Call) noteSettlements(b *Batch) {
	for i := range c.settling {
		s, v := &c.settling[i], &b.verdicts[c.firstSettling+i]
		if s.decision >= 0 {
			c.noteReport(b, s, v)
			if v.Err == nil && !v.Outcomes[0].Held {
				b.engine.noteUnreserved(s.view)
			}
		} else if v.Err != nil {
			b.engine.leases.QueueSettlement(&s.Settlement)
			continue
		}
		if v.Err != nil {
			continue
		}
		b.engine.leases.NoteSettled(&s.Settlement, v)
		if s.view != nil && s.cost >= 0 && v.Outcomes[0].Held {
			s.view.reserve.learn(b.engine, s.Ops[0].Key.Group, s.cost)
		}
	}
}

// noteReport answers the descriptor of a report.
func (c *Call) noteReport(b *Batch, s *settling, v *limit.Verdict) {
	d := &c.Decisions[s.decision]
	if v.Err != nil {
		d.Outcome = OutcomeFailedOpen
		b.engine.logFailure(c.Request, "a reported cost was not charged", v.Err)
		return
	}
	d.Outcome = OutcomeOK
	if len(v.Outcomes) > 1 {
		d.Limit, d.Left = s.view.limitOf(s.Ops[1].Key.Limit), max(v.Outcomes[1].Remaining, 0)
		d.status.limit, d.status.Remaining = d.Limit, scaled(d.Left, d.Limit.wide)
	}
}

func (v *ruleView) limitOf(part string) *LimitView {
	for i := range v.limits {
		if v.limits[i].keyPart == part {
			return &v.limits[i]
		}
	}
	return nil
}

// keepReservations adds to the call's lease what it has reserved by verdict v.
func (c *Call) keepReservations(b *Batch, v *limit.Verdict) {
	c.keepTogether(b, v)
	for i := range c.reserved {
		r := &c.reserved[i]
		d, op, out := &c.Decisions[r.decision], &c.Ops[r.op], &v.Outcomes[r.op]
		lv, view := c.views[r.op], d.view
		if op.Alternative() && !out.Chosen {
			continue
		}
		counts := b.engine.conf.Metrics.Reservation(lv.domain, lv.rule)
		if !out.Admitted {
			counts.At(int(leases.Unkept)).Inc()
			continue
		}
		parts := []string{} // not nil, which would mean all limits
		for at := d.First; at < d.First+d.n; at++ {
			if c.views[at].reserved && v.Outcomes[at].Admitted {
				parts = append(parts, c.views[at].keyPart)
			}
		}
		grant := leases.Grant{Op: *op, Domain: lv.domain, Rule: lv.rule,
			Back: view.corrections(nil, op.Key.Group, parts, 0, v.At)}
		oldest := view.reserve.Match == descriptors.MatchOldest
		if n := len(parts); n == 0 || oldest && n < view.countReserved() {
			b.engine.leases.Abandon(&grant) // a limit in shadow mode had no room
			continue
		}
		c.Response.granted = append(c.Response.granted, grant)
		ttl := view.reserve.KeptFor()
		b.engine.leases.Observe(op.Key, c.Request.Domain, lv.rule, ttl, out.InFlight, v.At)
		if !out.Held {
			counts.At(int(leases.Reserved)).Inc()
			b.engine.conf.Metrics.ReservedUnits(lv.domain, lv.rule).At(int(leases.UnitsReserved)).Add(r.units)
		}
		c.units += r.units
		if oldest && !c.Request.InProcess && c.Request.Purpose != Holds {
			b.engine.leases.Grants(c.Request.proxy())
			continue
		}
		c.lease.Reserved = append(c.lease.Reserved, leases.Reservation{Key: op.Key, TTL: ttl, Rule: lv.rule, Units: r.units,
			Note: noteOf(parts, d.Entries), Oldest: oldest})
		if end := v.At.Add(ttl); c.lease.Until == 0 || end < c.lease.Until {
			c.lease.Until = end
		}
	}
}

func (v *ruleView) countReserved() (n int) {
	for i := range v.limits {
		if v.limits[i].reserved {
			n++
		}
	}
	return n
}

// A note says what a reservation has charged, by whatever rules are then in force: the key
// parts of limits, and the entries of the descriptor.
func noteOf(parts []string, entries []descriptors.Entry) string {
	var space [256]byte
	b := limit.AppendPart(space[:0], strconv.Itoa(len(parts)))
	for _, p := range parts {
		b = limit.AppendPart(b, p)
	}
	for i := range entries {
		b = limit.AppendPart(limit.AppendPart(b, entries[i].Key), entries[i].Value)
	}
	return string(b)
}

func parseNote(note string) (parts []string, entries []descriptors.Entry) {
	all := descriptors.SplitGroup(note)
	if len(all) == 0 {
		return nil, nil
	}
	n, err := strconv.Atoi(all[0])
	if all = all[1:]; err != nil || n < 0 || n > len(all) || (len(all)-n)%2 != 0 {
		return nil, nil
	}
	for at := n; at < len(all); at += 2 {
		entries = append(entries, descriptors.Entry{Key: all[at], Value: all[at+1]})
	}
	return all[:n], entries
}

// viewFor returns the view of the rule that applies to entries now, under the policies in
// force; nil if it does not reserve.
func (e *engine) viewFor(rules *ruleset, inForce *policies.Snapshot, domain string,
	entries []descriptors.Entry) *ruleView {
	if rules.awaited || len(entries) == 0 {
		return nil
	}
	var m descriptors.Match
	rules.set.Match(domain, entries, &m)
	if m.Rule == nil {
		return nil
	}
	v := rules.views[m.Rule.ID]
	if v.policies != nil {
		v, _ = v.policies.view(inForce, entries)
	}
	if v.reserve == nil {
		return nil
	}
	return v
}

// endReservations adds the settlements of what a token has reserved.
func (c *Call) endReservations(b *Batch, r *leases.Return, end *tokenEnd) {
	if len(r.Reserved) > 0 {
		b.engine.conf.ended(r.Holder, end.how(), end.cost)
	}
	for i := range r.Reserved {
		one := &r.Reserved[i]
		parts, entries := parseNote(one.Note)
		view := b.engine.viewFor(b.rules, b.policies, r.Domain, entries)
		s := settling{view: view, decision: -1, cost: -1, Settlement: leases.Settlement{
			Ops: []limit.Op{one.Ending(r.Holder, limit.EndKnown)}, Domain: r.Domain, Rule: one.Rule, Late: c.late(b, r)}}
		free, cost := end.event(view, &s), int64(0)
		if end.settles {
			s.cost, cost = end.cost, end.cost
		}
		if view != nil && free {
			s.Ops = view.corrections(s.Ops, one.Key.Group, parts, cost, r.Granted)
		}
		if end.full(view) {
			s.Event, s.cost = leases.Full, -1
			view.takeTheRest(s.Ops[1:])
		}
		c.settle(s)
	}
}

// late reports whether a lease has expired, as far as this process knows.
func (c *Call) late(b *Batch, r *leases.Return) bool { return b.engine.conf.Now() >= r.Until }

// A tokenEnd is what a call says of a token that came back.
type tokenEnd struct {
	token           string
	action          leases.Action // on leases of requests in flight, "" for none
	settles, failed bool
	cost            int64
	status          uint64 // of its request, 0 if the call does not say it
}

const tooManyRequests = 429

// full reports whether the provider has said that its own budget is used up, and the rule wants nothing to be left.
func (e *tokenEnd) full(view *ruleView) bool {
	return e.status == tooManyRequests && e.settles && view != nil &&
		view.reserve.On429 == descriptors.FullExhaust
}

// takeTheRest makes ops that correct what the limits of v have been charged take what is left of them.
func (v *ruleView) takeTheRest(ops []limit.Op) {
	for i := range ops {
		if lv := v.limitOf(ops[i].Key.Limit); lv.full != nil {
			ops[i].Limit, ops[i].Cost = lv.full, limit.MaxUnits
		}
	}
}

// A ReservationEnd says how a request of this process has ended that has reserved units.
type ReservationEnd uint8

// The ends.
const (
	Settled   ReservationEnd = iota // its cost is known
	Cancelled                       // it has cost nothing
	Failed                          // it has failed, and its cost is not known
	Unsettled                       // its cost is not known
)

// EndReservation ends what a request of this process has reserved ([Inside.Lease]). What the
// store does not do before ctx's deadline is done in the background.
func (s *Service) EndReservation(ctx context.Context, l *leases.Lease, how ReservationEnd, cost uint64) {
	b := s.batches.Get().(*Batch)
	defer s.batches.Put(b)
	defer b.release()
	b.start(&s.engine, []*Request{{Domain: l.Domain}}, []*Response{new(Response)})
	c := &b.calls[0]
	end := tokenEnd{settles: how <= Cancelled, failed: how == Failed, cost: int64(min(cost, maxCost))}
	c.endReservations(b, &leases.Return{Lease: *l}, &end)
	for i := range c.settling {
		if how == Cancelled {
			c.settling[i].Event, c.settling[i].cost = leases.Cancelled, -1 // which says nothing of costs
		}
	}
	c.addSettlements(b)
	b.ready()
	s.ask(ctx, s.conf.Backend, b.takes, b.verdicts)
	c.noteSettlements(b)
}

// how returns how the request ended, as its caller reported it.
func (e *tokenEnd) how() ReservationEnd {
	switch {
	case e.settles:
		return Settled
	case e.failed:
		return Failed
	}
	return Unsettled
}

// event sets what a settlement counts as, and reports whether the charge is corrected.
func (e *tokenEnd) event(view *ruleView, s *settling) (corrected bool) {
	switch {
	case e.settles:
		s.Event = leases.Settled
		return true
	case e.failed:
		s.Event = leases.Failed
		return view != nil && view.reserve.On5xx == descriptors.EndFree
	}
	s.Event = leases.Unsettled
	return view != nil && view.reserve.OnLost == descriptors.EndFree
}

// lostCorrections returns the ops that give back what lost reservations under a key have
// charged; none if they count as used.
func (e *engine) lostCorrections(domain, _ string, key limit.Key) []limit.Op {
	rules := e.rules.Load()
	if rules.awaited {
		return nil
	}
	of, entries, _, ok := rules.set.Counted(key.Group)
	if !ok || of != domain {
		return nil
	}
	view := e.viewFor(rules, e.snapshot(), domain, entries)
	if view == nil || view.reserve.OnLost != descriptors.EndFree {
		return nil
	}
	return view.corrections(nil, key.Group, e.enforced(view), 0, limit.AsLeased)
}

// enforced returns the key parts of the limits that every reservation under a rule has charged. A limit in shadow mode
// is not among them: without room, a reservation charges it nothing.
func (e *engine) enforced(v *ruleView) []string {
	parts := []string{}
	if v.quota || e.conf.ShadowMode {
		return parts
	}
	for i := range v.limits {
		if lv := &v.limits[i]; lv.reserved && !lv.Shadow {
			parts = append(parts, lv.keyPart)
		}
	}
	return parts
}

// Reservation and ReservedUnits implement [leases.Metrics].
func (m *Metrics) Reservation(domain, rule string) *metrics.Series {
	return m.ofRule(func(m *Metrics) *metrics.Counters { return &m.reservations }, domain, rule)
}

// ReservedUnits implements [leases.Metrics].
func (m *Metrics) ReservedUnits(domain, rule string) *metrics.Series {
	return m.ofRule(func(m *Metrics) *metrics.Counters { return &m.reservedUnits }, domain, rule)
}

func (m *Metrics) ofRule(of func(*Metrics) *metrics.Counters, domain, rule string) *metrics.Series {
	if m == nil {
		return nil
	}
	c := of(m)
	if s := c.Find(domain, rule); s != nil {
		return s
	}
	others := func() *metrics.Series { return c.Hold("", otherRule) }
	return m.looseSeries(c, strings.Clone(domain), strings.Clone(rule), others)
}
