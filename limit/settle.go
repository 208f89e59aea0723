package limit

import (
	"strconv"
	"strings"
)

// A reservation is a lease whose holder's name has an amount: so many units were
// charged to other limits when it was granted. A settlement is a request that ends
// reservations and corrects these charges, in one step. Its first op ends leases, and
// each other op has [Op.AsOf] and the cost that is known now: it charges what the cost
// is more than the amount, or gives back what it is less. Where nothing has ended,
// nothing is corrected: so a settlement that is repeated does nothing. Only one that
// ends leases without naming a holder charges its cost all the same.

// ReservationPart is the half of keys under which the reservations of a rule are kept
// ([Key.Limit]).
const ReservationPart = "cr"

// AsLeased is an [Op.AsOf]: the charge is as old as the lease that has ended. A lease
// that was renewed does not say how old it is. Nothing is given back for it.
const AsLeased Instant = -1

// AsLeasedBeyond is [AsLeased] for an op whose cost is what comes beyond the amount: below zero, it is how much less.
const AsLeasedBeyond Instant = -2

// amountMark stands between a holder's name and its amount.
const amountMark = "~"

// MaxAmountLen is by how much [WithAmount] makes a name longer, at most.
const MaxAmountLen = len(amountMark) + 14

// WithAmount returns the name of a lease that is a reservation of so many units, from
// 0 to 2^52.
func WithAmount(holder string, units int64) string {
	return holder + amountMark + strconv.FormatInt(min(max(units, 0), maxExact), 16)
}

// Amount returns how many units the lease of a holder reserves, 0 if it is no
// reservation.
func Amount(holder string) int64 {
	at := strings.LastIndex(holder, amountMark)
	if at < 0 || len(holder)-at > MaxAmountLen {
		return 0
	}
	n, err := strconv.ParseUint(holder[at+1:], 16, 63)
	if err != nil {
		return 0
	}
	return min(int64(n), maxExact)
}

// One op alone that has [Op.AsOf] and a negative cost gives back units that were charged
// at that instant and not used: none of a window that is over, and of a log only its own
// records.

// Settles reports whether ops are those of a settlement, or one op that gives back.
func Settles(ops []Op) bool { return len(ops) > 0 && ops[len(ops)-1].AsOf != 0 }

// GivesBack reports whether op may make room for others.
func (op *Op) GivesBack() bool { return op.Cost < 0 || op.AsOf != 0 }

// A bucket must not refill above what its open reservations leave of it: what they do
// not use comes back, and may be no more than the bucket would have if it had never been
// taken. So where units are reserved or settled, the bucket refills up to its capacity
// less all that is reserved.

// HeldBy returns which of ops has the reservations that hold back ops[i], or -1: of a
// settlement its first, else the first of the same group and alternative that takes one.
func HeldBy(ops []Op, i int) int {
	if !ops[i].Limit.Is(Refilled) || len(ops) == 1 {
		return -1
	}
	if Settles(ops) {
		return 0
	}
	for j := range ops {
		op := &ops[j]
		if op.Limit.Is(Leased) && op.Cost > 0 && op.Key.Group == ops[i].Key.Group && op.Choice == ops[i].Choice &&
			Amount(op.Holder) > 0 {
			return j
		}
	}
	return -1
}

// holdBack has the buckets among ops refill no further than the reservations allow that
// are open before them.
func holdBack(states []State, ops []Op, now Instant) {
	for i := range ops {
		holdBackOp(states, ops, i, now)
	}
}

// holdBackOp is holdBack for ops[i] alone.
func holdBackOp(states []State, ops []Op, i int, now Instant) {
	if j := HeldBy(ops, i); j >= 0 {
		reserved := states[firstWithKey(ops, j)].Leases.reservedAt(now)
		states[firstWithKey(ops, i)].refillTo(ops[i].Limit, reserved, now)
	}
}

// refillTo refills a bucket until now, up to its capacity less so many units. A bucket without a state
// may be one that was full, and whose state a store has dropped: it is the same.
func (s *State) refillTo(l *Limit, reserved int64, now Instant) {
	most := l.full - min(reserved, l.capacity)*l.num
	if reserved <= 0 || s.At > now || s.M > 0 && s.M != l.num || l.level(s, now) <= most {
		return
	}
	*s = State{At: now, N: most, M: l.num}
}

// decideSettlement answers a settlement. before is scratch memory for as many states.
func decideSettlement(states []State, ops []Op, now Instant, v *Verdict, before []State) (changes Changes) {
	unchanged(states)
	copy(before, states)
	for i := range ops {
		if s := &states[i]; s.At > now {
			s.moveTo(now, ops[i].Limit)
		}
	}
	holdBack(states, ops, now)
	set := states[0].Leases.made()
	states[0].Leases = set
	set.begin()
	states[0], v.Outcomes[0] = stepConcurrency(states[0], &ops[0], now, false)
	var ended []queued
	for _, q := range set.journal.scores {
		if q.score > 0 && set.scores[q.holder] == 0 {
			ended = append(ended, q)
		}
	}
	v.Outcomes[0].Taken = int64(len(ended))
	for i := 1; i < len(ops); i++ {
		states[firstWithKey(ops, i)].settle(&ops[i], &ops[0], ended, now, &v.Outcomes[i])
	}
	set.commit(now)
	for i := range states {
		if firstWithKey(ops, i) == i && !same(&before[i], &states[i]) {
			changes.add(i)
		}
	}
	return changes | changedLeases(states, ops)
}

// settle corrects what the ended leases have charged to op's limit.
func (s *State) settle(op, lease *Op, ended []queued, now Instant, out *Outcome) {
	var taken int64
	for i, q := range ended {
		cost := int64(0)
		if i == 0 {
			cost = op.Cost
		}
		taken += s.correct(op, op.owed(cost, Amount(q.holder)), op.chargedAt(lease, q.score), now)
	}
	if len(ended) == 0 && lease.Holder == "" {
		taken = s.correct(op, max(op.Cost, 0), charge{}, now)
	}
	s.corrected(op, taken, now, out)
}

// owed returns how many units a cost is beyond the amount of the lease that has ended.
func (op *Op) owed(cost, amount int64) int64 {
	if op.AsOf == AsLeasedBeyond {
		cost += amount
	}
	return max(cost, 0) - amount
}

// corrected answers op, which has charged so many units.
func (s *State) corrected(op *Op, taken int64, now Instant, out *Outcome) {
	ask := Op{Limit: op.Limit}
	_, left := Step(*s, &ask, now)
	*out = Outcome{Admitted: true, Remaining: left.Remaining, Reset: left.Reset, Taken: taken}
}

// decideReturn answers a request whose one op gives back. It reports whether s has changed.
func decideReturn(s *State, op *Op, now Instant, out *Outcome) (changed bool) {
	before := *s
	if s.At > now {
		s.moveTo(now, op.Limit)
	}
	s.corrected(op, s.correct(op, op.Cost, charge{op.AsOf, op.AsOf}, now), now, out)
	return !same(&before, s)
}

// A charge is when units were charged. Nothing is given back of one that is empty.
type charge struct{ from, to Instant }

// chargedAt returns when the units were charged of a lease with this score.
func (op *Op) chargedAt(lease *Op, score int64) charge {
	switch {
	case op.AsOf > 0:
		return charge{op.AsOf, op.AsOf}
	case score%8 == maxAgain:
		return charge{0, -1}
	}
	at := expiry(score) - Instant(lease.Limit.window) // rounded up to a millisecond
	return charge{at - 999, at}
}

// correct charges units, or gives back -units that were charged at an instant: none of a
// window that is not the state's, or that is over. It returns how many were.
func (s *State) correct(op *Op, units int64, charged charge, now Instant) int64 {
	l := op.Limit
	switch {
	case units >= 0:
	case charged.to < charged.from || charged.from <= 0:
		return 0
	case l.Is(Logged):
		return -s.unrecord(-units, charged, now)
	case l.Is(Aligned):
		start, _ := l.windowOf(max(now, min(s.At, MaxInstant)))
		if charged.from < start || s.At != start { // the state may be of windows of another length since
			return 0
		}
	}
	if units == 0 {
		return 0
	}
	var out Outcome
	s.step(&Op{Limit: l, Cost: units}, now, &out)
	if !out.Admitted {
		return out.Taken
	}
	return units
}

// unrecord removes units from a log that were recorded at the time of charged, and returns how many it
// removed. It removes none from a log that owes: its records have other times.
func (s *State) unrecord(units int64, charged charge, now Instant) (given int64) {
	if s.At > now {
		return 0
	}
	for _, r := range s.Log {
		if r.At >= charged.from && r.At <= charged.to {
			given += r.N
		}
	}
	if given = min(given, units); given > 0 {
		*s = s.withoutRecords(charged, given)
	}
	return given
}

// withoutRecords returns a log without n units that were recorded at an instant.
func (s *State) withoutRecords(charged charge, n int64) State {
	left := State{N: s.N - n}
	for _, r := range s.Log {
		if r.At >= charged.from && r.At <= charged.to {
			back := min(r.N, n)
			r.N, n = r.N-back, n-back
		}
		if r.N > 0 {
			left.Log, left.At = append(left.Log, r), r.At
		}
	}
	if len(left.Log) == 0 {
		return State{}
	}
	return left
}
