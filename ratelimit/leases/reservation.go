package leases

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A Reservation is a lease whose request has charged units to other limits under the
// same group. They are corrected when it ends: see limit/settle.go.
type Reservation struct {
	Key limit.Key
	// TTL is how long the store keeps it, in whole milliseconds.
	TTL   time.Duration
	Rule  string // the rule's path, for metrics
	Units int64
	// Note is for those who make the corrections: the tracker hands it on.
	Note string
	// Oldest: a report settles it, not a token. Tokens lack this field: only callers in this process see it.
	Oldest bool
}

// A Settlement ends a reservation.
type Settlement struct {
	// Ops end the lease first. Those after it correct its charge; without any the charge
	// stays.
	Ops          []limit.Op
	Domain, Rule string
	// Event is what it counts as if the reservation was there.
	Event ReservationEvent
	// Late says that the reservation has expired if it is not there.
	Late bool
	// Beside: the report is about another reservation, which the request has asked for in the same call.
	Beside bool
}

// A ReservationEvent is something that happens to reservations.
type ReservationEvent uint8

// The events.
const (
	Reserved  ReservationEvent = iota
	Settled                    // ended with a cost
	Failed                     // ended without a cost, by a request that failed
	Unsettled                  // ended without a cost
	LostOne                    // its end was not reported before it was lost, or its proxy is gone
	Late                       // its end was reported after it was lost
	Again                      // its end was reported again
	Cancelled                  // nobody received the answer that granted it
	Unkept                     // not kept, because there are too many: its charge stays
	Refused                    // its request is refused, because its key has as many as it may have
	Reported                   // a cost for which nothing was reserved
	Unasked                    // a call that neither reserves nor reports, by the hits that it has
	Full                       // ended with the status 429, so that what is left of its limits was taken
	NumReservationEvents
)

// String returns the event's metric label.
func (e ReservationEvent) String() string {
	return [NumReservationEvents]string{"reserved", "settled", "failed", "unsettled", "lost", "late", "repeated",
		"cancelled", "unkept", "refused", "unreserved", "unasked", "full"}[e]
}

// A UnitKind says which units of reservations are counted.
type UnitKind uint8

// The kinds.
const (
	UnitsReserved  UnitKind = iota
	UnitsRefunded           // given back
	UnitsOverspent          // charged beyond what was reserved
	UnitsLost               // of lost reservations, whatever became of them
	NumUnitKinds
)

// String returns the kind's metric label.
func (k UnitKind) String() string {
	return [NumUnitKinds]string{"reserved", "refunded", "overspent", "lost"}[k]
}

// Ending returns the op that ends r, of a lease with this holder.
func (r *Reservation) Ending(holder string, how limit.Ending) limit.Op {
	return limit.Op{Key: r.Key, Limit: lifeLimit(r.TTL), Cost: -1, Holder: limit.WithAmount(holder, r.Units), Ending: how,
		Shadow: true}
}

// EndingOldest returns the op that ends the oldest of the reservations under a key, which live so long.
func EndingOldest(key limit.Key, ttl time.Duration) limit.Op {
	return limit.Op{Key: key, Limit: lifeLimit(ttl), Cost: -1, Shadow: true}
}

// due reports whether a reservation is to be renewed now: not before half of the time after which it is
// lost, because a renewed one does not say any more when its units were charged.
func (t *Tracker) due(l *Lease, r *Reservation) bool {
	return t.conf.Now() > l.Granted.Add((r.TTL-t.conf.Reservations.Grace)/2)
}

// NoteSettled counts what became of a settlement.
func (t *Tracker) NoteSettled(s *Settlement, v *limit.Verdict) {
	lease := &v.Outcomes[0]
	events := t.conf.Metrics.Reservation(s.Domain, s.Rule)
	op := &s.Ops[0]
	t.tally.observeEnd(op.Key, inFlightAfter(lease), v.At)
	switch {
	case lease.Held && (len(s.Ops) == 1 || lease.Taken > 0):
		events.At(int(s.Event)).Inc()
	case lease.Held: // another attempt has it
	case op.Holder == "" && s.Beside: // one that was asked for with it, and has ended before
	case op.Holder == "":
		events.At(int(Reported)).Inc()
	case s.Late:
		events.At(int(Late)).Inc()
	default:
		events.At(int(Again)).Inc()
	}
	if s.Event != Full {
		t.noteUnits(s.Domain, s.Rule, v)
	}
}

// noteUnits counts the units that a settlement has corrected, of its first limit.
func (t *Tracker) noteUnits(domain, rule string, v *limit.Verdict) {
	if len(v.Outcomes) < 2 {
		return
	}
	units := t.conf.Metrics.ReservedUnits(domain, rule)
	if n := v.Outcomes[1].Taken; n < 0 {
		units.At(int(UnitsRefunded)).Add(-n)
	} else {
		units.At(int(UnitsOverspent)).Add(n)
	}
}

// QueueSettlement does a settlement in the background, and retries it until the
// reservation would have expired. It keeps nothing of a request's memory.
func (t *Tracker) QueueSettlement(s *Settlement) {
	s = s.clone()
	t.releaser.add(release{ops: s.Ops, settlement: s, domain: s.Domain, rule: s.Rule})
}

func (s *Settlement) clone() *Settlement {
	c := *s
	c.Ops = slices.Clone(s.Ops)
	c.Domain, c.Rule = strings.Clone(s.Domain), strings.Clone(s.Rule)
	for i := range c.Ops {
		op := &c.Ops[i]
		op.Key = limit.Key{Group: strings.Clone(op.Key.Group), Limit: strings.Clone(op.Key.Limit)}
		op.Holder = strings.Clone(op.Holder)
	}
	return &c
}

// Grants notes that a proxy got reservations whose ends have no token.
func (t *Tracker) Grants(p Proxy) {
	if p.Name != "" {
		t.owners.addGrant(p)
	}
}

// lateMillis is how long before their end in the store reservations are lost.
func (t *Tracker) lateMillis() int64 { return t.conf.Reservations.Grace.Milliseconds() }

// question returns the ops that the backend is asked about an entry: of reservations they end those
// that are lost.
func (t *Tracker) question(e *entry) []limit.Op {
	op := limit.Op{Key: e.key, Limit: lifeLimit(e.ttl)}
	if !e.reserves() {
		return []limit.Op{op}
	}
	op.Cost, op.Ending = -t.lateMillis(), limit.EndLate
	return t.withCorrections(op, e)
}

// withCorrections adds to an op that ends reservations what becomes of their charges.
func (t *Tracker) withCorrections(op limit.Op, e *entry) []limit.Op {
	ops := []limit.Op{op}
	if e.reserves() && t.conf.Reservations.Lost != nil {
		ops = append(ops, t.conf.Reservations.Lost(e.of.domain, e.of.rule, e.key)...)
	}
	return ops
}

// noteLost counts reservations that ended because nobody ended them: n, if the verdict does not say.
func (t *Tracker) noteLost(e *entry, v *limit.Verdict, n int64) {
	if len(v.Outcomes) > 1 {
		n = v.Outcomes[0].Taken
	}
	if n <= 0 {
		return
	}
	t.conf.Metrics.Reservation(e.of.domain, e.of.rule).At(int(LostOne)).Add(n)
	t.noteUnits(e.of.domain, e.of.rule, v)
	if len(v.Outcomes) > 1 {
		t.conf.Metrics.ReservedUnits(e.of.domain, e.of.rule).At(int(UnitsLost)).Add(max(-v.Outcomes[1].Taken, 0))
	}
	t.warn("requests have not reported their end or their cost: their reservations are lost", "domain", e.of.domain,
		"rule", e.of.rule, "reservations", n)
}

// Reservations is what a Tracker needs for them.
type Reservations struct {
	// Grace is how long before its end in the store a reservation is lost.
	Grace time.Duration
	// Lost returns the ops that correct what reservations under a key have charged that are lost,
	// none if the charge stays.
	Lost func(domain, rule string, key limit.Key) []limit.Op
}
