package limit

import "time"

// Never is the Retry of a cost that no wait makes room for.
const Never = time.Duration(-1)

// An Op asks one limit for Cost units under one key.
type Op struct {
	Key   Key
	Limit *Limit
	// Cost is how many units are wanted, all or none. Zero asks whether at
	// least one unit is left and takes nothing. A negative cost gives units
	// back; it is always admitted and never leaves more than an unused key has.
	//
	// For Concurrency any positive cost is one request in flight. It takes the
	// lease of Holder, or finds that Holder has it: then its whole request was
	// granted before and nothing is charged again. Zero with a Holder renews
	// the lease and is admitted if there is one. A negative cost ends what
	// Holder and Ending say, or without a Holder that many of the leases that
	// would expire first.
	Cost int64
	// Holder names a lease of a Concurrency limit: at most MaxHolderLen bytes
	// that nobody else uses under the key.
	Holder string
	// Ending says which leases a negative cost with a Holder ends.
	Ending Ending
	// Shadow ops are counted like others but never refuse their request.
	Shadow bool
	// Each charges the op on its own: whenever it has room itself, whatever
	// becomes of the request's other ops. (`charge: each` in rules.) It means
	// nothing to Concurrency: a refused request holds no lease.
	//
	// An op that has no room itself takes what its limit's Overflow says, with
	// or without Each.
	Each bool
	// Choice makes the op part of one of several alternatives, of which one is charged: see
	// [Request].
	Choice Choice
	// AsOf, if it is not zero, makes the op correct what was charged at that instant (or at
	// [AsLeased] or [AsLeasedBeyond]): see settle.go. Such an op follows one that ends leases, or is alone and
	// gives back. It is always admitted.
	AsOf Instant
}

// A Choice says which alternative an op is part of.
type Choice struct {
	// Set names alternatives to each other; 0 is that of ops that are no part of any.
	Set uint8
	// Group is the alternative's place among them: the lower ones are tried first.
	Group uint8
}

// Alternative reports whether op is part of an alternative.
func (op *Op) Alternative() bool { return op.Choice.Set != 0 }

// MaxHolderLen bounds Op.Holder.
const MaxHolderLen = 64

// An Ending says which leases an Op with a Holder and a negative cost ends.
type Ending uint8

const (
	// EndLease ends Holder's lease for all who have it. Where there is none
	// its end is remembered for EndedLife, so that an acquire that it has
	// overtaken is refused.
	EndLease Ending = iota
	// EndAttempt gives back what one acquire took, whose answer nobody will
	// use: a lease that was acquired again stays.
	EndAttempt
	// EndOwner ends the leases whose holder's name begins with Holder: with
	// Cost -1 those among the OwnerSlice leases that expire first. Where there
	// are more, [Op.Rest] returns the op that goes on.
	EndOwner
	// EndKnown is EndLease for a lease that is known to have been granted: where there is
	// none any more its end is not remembered.
	EndKnown
	// EndLate ends, of all holders, the first OwnerSlice leases that expire within -Cost
	// milliseconds.
	EndLate
)

// OwnerSlice is how many leases an Op with EndOwner looks at, so that a store
// is not kept from other work. Leases that expire in one millisecond are not
// separated: of the last one it looks at all.
const OwnerSlice = 1024

// ChargesEach reports whether op is charged also when its request is refused.
func (op *Op) ChargesEach() bool { return op.Each && !op.Alternative() && !op.Limit.Is(Leased) }

// Rest returns what is left to be done of op, the only one of the request that
// v answers, and whether there is anything: only EndOwner leaves something. Ops
// that are repeated until there is nothing left end all leases of an owner that
// were granted before the first of them.
func (op *Op) Rest(v *Verdict) (Op, bool) {
	if !op.Limit.Is(Leased) || !op.endsOwner() || v.Err != nil || v.Outcomes[0].Retry <= 0 {
		return Op{}, false
	}
	rest := *op
	rest.Cost = -int64(v.At.Add(v.Outcomes[0].Retry))
	return rest, true
}

// A Request is one caller's question: a few ops. It is admitted when every op
// that is not a shadow has room. Admitted, all its ops with room are recorded;
// refused, only those with Each. Ops without room take what their limit's
// [Overflow] says, whatever becomes of the request; so do, in a refused request,
// all ops under the same key that take.
//
// Ops may share a key (a caller may send the same descriptor twice); the
// later one then finds what the earlier one left. Its Retry is about its own
// cost; where the costs together exceed the limit, no wait helps the request.
//
// Ops with a [Choice] are alternatives. Ops of one Set and Group are one alternative, and of each
// Set one alternative is charged: the first, by its Group, whose ops have room (a shadow need not).
// They are decided after the ops without a Choice, Set by Set. If a Set has no alternative with
// room, the request is refused. An alternative that is not charged takes nothing: Each and Overflow
// mean nothing to an op with a Choice. A request that was granted before (see [Op.Cost]) is charged
// nothing again, in no alternative.
type Request struct {
	Ops []Op
	// At is the instant to decide at. Zero means the store's own clock, which
	// the store must then have.
	At Instant
}

// An Outcome is what one limit says to one op. Every field is filled for
// every algorithm.
type Outcome struct {
	// Admitted says whether the op had room. An op of a refused request can
	// have had room. Of an alternative behind the first with room it is true: nobody has looked.
	Admitted bool
	// Held says, for Concurrency, that Holder's lease existed before the op.
	Held bool
	// Chosen says, for an op with a [Choice], that its alternative is the one that an admitted request
	// is charged for. Of a request that was granted before it is the one with a lease, in a Set
	// without leases the first.
	Chosen bool
	// Remaining is how many units are left after the op, or, where it was not
	// recorded, without it.
	Remaining int64
	// Taken is how many units an op without room took all the same, as the
	// limit's Overflow says. For an op with AsOf it is how many units it charged, below
	// zero how many it gave back; for the first op of its request how many leases ended.
	Taken int64
	// Retry is how long to wait until the same cost (at least one unit) has
	// room, if nobody else takes any: zero when it has room now, [Never] when
	// the cost exceeds what the limit can ever give. For an Op with EndOwner it
	// is how long until the next lease expires that was not looked at, zero if
	// there is none: see [Op.Rest].
	Retry time.Duration
	// Reset is how long until the limit is as good as unused, if nobody takes
	// any more. For a FixedWindow it is the end of the current window.
	Reset time.Duration
	// InFlight is, for Concurrency, how many leases there are after the op;
	// for an op without room, how many there were with it and those who were
	// refused in the last Hold.
	InFlight int64
}

// A Verdict is the answer to one [Request].
type Verdict struct {
	// Err says what kept the request from being decided; the other fields are
	// then meaningless.
	Err error
	// At is the instant that was decided at.
	At Instant
	// Admitted says whether every op that is not a shadow had room.
	Admitted bool
	// Recalled: the store could not be asked now. It has refused this before, until a time that is not over.
	Recalled bool
	// Outcomes has one entry per op, in the request's order.
	Outcomes []Outcome
}

// Charged reports whether ops[i], of the request that v answers, is recorded, apart from what it has taken without
// room ([Outcome.Taken]).
func (v *Verdict) Charged(ops []Op, i int) bool {
	op, out := &ops[i], &v.Outcomes[i]
	return out.Admitted && (op.ChargesEach() || v.Admitted && (out.Chosen || !op.Alternative()))
}

// Reset prepares v for reuse with n outcomes, keeping its memory.
func (v *Verdict) Reset(n int) {
	if cap(v.Outcomes) < n {
		v.Outcomes = make([]Outcome, n)
	}
	*v = Verdict{Outcomes: v.Outcomes[:n]}
	clear(v.Outcomes)
}

// Fail makes v that of a request that was not decided, keeping its memory.
func (v *Verdict) Fail(err error) {
	v.Reset(0)
	v.Err = err
}

// firstWithKey returns the index of the first op with ops[i]'s key.
func firstWithKey(ops []Op, i int) int {
	for j := range ops[:i] {
		if ops[j].Key == ops[i].Key {
			return j
		}
	}
	return i
}

// delay adds to the waits of an op that was decided as if it came so much later.
func (o *Outcome) delay(by time.Duration) {
	if o.Retry > 0 {
		o.Retry += by
	}
	if o.Reset > 0 {
		o.Reset += by
	}
}

// endsOwner reports whether op ends the leases of an owner.
func (op *Op) endsOwner() bool { return op.Cost < 0 && op.Ending == EndOwner && op.Holder != "" }

// wanted is the cost that Retry is about: asking without taking, or giving
// back, is about one unit.
func wanted(cost int64) int64 { return max(cost, 1) }

// refund returns how many of the used units a negative cost gives back.
func refund(cost, used int64) int64 {
	if cost < -used {
		return used
	}
	return -cost
}
