package limit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
)

const ttl = time.Minute

var reservations = MustNew(Spec{Algorithm: Concurrency, Max: 1000, Window: ttl})

// A budget is a limit of which units are reserved, and the reservations.
type budget struct {
	limit        *Limit
	state, lease State
}

func (b *budget) take(ops []Op, now Instant) Verdict {
	states := make([]State, len(ops))
	for i := range ops {
		states[i] = b.state
		if ops[i].Limit.Is(Leased) {
			states[i] = b.lease
		}
	}
	var v Verdict
	Decide(states, &Request{Ops: ops}, now, &v, nil)
	for i := range ops {
		if ops[i].Limit.Is(Leased) {
			b.lease = states[i]
		} else {
			b.state = states[i]
		}
	}
	return v
}

// reserve charges units and returns the op that corrects that; nil if there is no room.
func (b *budget) reserve(holder string, units int64, now Instant) *Op {
	charge := Op{Key: Key{Limit: "b"}, Limit: b.limit.Strict(), Cost: units}
	keep := Op{Key: Key{Limit: "r"}, Limit: reservations, Cost: 1, Holder: WithAmount(holder, units), Shadow: true}
	v := b.take([]Op{charge, keep}, now)
	if !v.Admitted {
		return nil
	}
	return &Op{Key: charge.Key, Limit: b.limit, AsOf: now}
}

// end ends reservations and corrects what they have charged.
func (b *budget) end(lease Op, correct Op, cost int64, now Instant) Verdict {
	lease.Key, lease.Limit = Key{Limit: "r"}, reservations
	correct.Cost = cost
	return b.take([]Op{lease, correct}, now)
}

func (b *budget) left(now Instant) int64 {
	_, out := Step(b.state, &Op{Limit: b.limit}, now)
	return out.Remaining
}

func debt(t *testing.T, s Spec) *Limit {
	t.Helper()
	s.Overflow = Debt
	l, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var settleStart = InstantOf(time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC))

func budgets(t *testing.T, r *rand.Rand) (list []*budget) {
	for _, a := range Algorithms() {
		s := Spec{Algorithm: a, Max: 100, Window: 10 * time.Second}
		if r != nil {
			s.Max, s.Window = 1+r.Int64N(200), time.Duration(1+r.IntN(30))*time.Second
		}
		list = append(list, &budget{limit: debt(t, s)})
	}
	return list
}

func TestSettlementsCorrectWhatWasReserved(t *testing.T) {
	for _, b := range budgets(t, nil) {
		t.Run(b.limit.Algorithm().String(), func(t *testing.T) {
			now := settleStart
			correct := b.reserve("a", 60, now)
			if correct == nil || b.reserve("b", 60, now) != nil || b.left(now) != 40 {
				t.Fatalf("60 of 100 reserved: %d left", b.left(now))
			}
			known := Op{Cost: -1, Ending: EndKnown, Holder: WithAmount("a", 60)}
			now++
			v := b.end(known, *correct, 15, now)
			if out := v.Outcomes[1]; !v.Admitted || out.Taken != -45 || b.left(now) != 85 || v.Outcomes[0].Taken != 1 {
				t.Errorf("15 of 60 used: %+v, %d left", v.Outcomes, b.left(now))
			}
			if v = b.end(known, *correct, 15, now); v.Outcomes[1].Taken != 0 || b.left(now) != 85 {
				t.Errorf("settled again: %+v, %d left", v.Outcomes, b.left(now))
			}
			correct = b.reserve("c", 10, now)
			v = b.end(Op{Cost: -1, Ending: EndKnown, Holder: WithAmount("c", 10)}, *correct, 150, now)
			if out := v.Outcomes[1]; out.Taken != 140 || b.left(now) != 0 {
				t.Errorf("150 of 10 used: %+v, %d left", v.Outcomes, b.left(now))
			}
		})
	}
}

func TestSettlementsWithoutHolder(t *testing.T) {
	for _, b := range budgets(t, nil) {
		t.Run(b.limit.Algorithm().String(), func(t *testing.T) {
			now := settleStart
			b.reserve("a", 30, now)
			correct := b.reserve("b", 20, now+1)
			correct.AsOf = AsLeased
			if v := b.end(Op{Cost: -1}, *correct, 10, now+2); v.Outcomes[1].Taken != -20 {
				t.Errorf("the oldest, of 30, used 10: %+v", v.Outcomes)
			}
			b.end(Op{Cost: -1}, *correct, 20, now+3)
			before := b.left(now + 3)
			if v := b.end(Op{Cost: -1}, *correct, 5, now+3); v.Outcomes[1].Taken != 5 || b.left(now+3) != before-5 {
				t.Errorf("a cost that nothing was reserved for: %+v, %d left of %d", v.Outcomes, b.left(now+3), before)
			}
		})
	}
}

// TestSettlementsByWhatIsBeyond: a cost that is the difference to the amount of the lease that ends.
func TestSettlementsByWhatIsBeyond(t *testing.T) {
	for _, b := range budgets(t, nil) {
		t.Run(b.limit.Algorithm().String(), func(t *testing.T) {
			now := settleStart
			for i, c := range []struct{ reserved, beyond, taken int64 }{
				{30, -20, -20}, {30, 0, 0}, {10, 5, 5}, {10, -1000, -10}, {0, 7, 7}, {0, -7, 0},
			} {
				now++
				correct := &Op{Limit: b.limit}
				if c.reserved > 0 {
					correct = b.reserve("a"+string(rune('0'+i)), c.reserved, now)
				}
				correct.AsOf = AsLeasedBeyond
				before := b.left(now)
				v := b.end(Op{Cost: -1}, *correct, c.beyond, now)
				if v.Outcomes[1].Taken != c.taken || b.left(now) != before-c.taken {
					t.Errorf("%d reserved, %d beyond: %+v, %d left of %d", c.reserved, c.beyond, v.Outcomes, b.left(now), before)
				}
			}
		})
	}
}

// TestNothingOfAnotherWindow: what was reserved in a window that is over is not given
// back, and what was used beyond it is charged now.
func TestNothingOfAnotherWindow(t *testing.T) {
	for _, b := range budgets(t, nil) {
		if !b.limit.Is(Aligned) {
			continue
		}
		for _, asOf := range []Instant{0, AsLeased} {
			b := &budget{limit: b.limit}
			correct := b.reserve("a", 60, settleStart)
			if asOf != 0 {
				correct.AsOf = asOf
			}
			now := settleStart.Add(30 * time.Second)
			b.reserve("b", 50, now)
			left := b.left(now)
			v := b.end(Op{Cost: -1, Ending: EndKnown, Holder: WithAmount("a", 60)}, *correct, 10, now)
			if v.Outcomes[1].Taken != 0 || b.left(now) != left {
				t.Errorf("%v: %+v, %d left", b.limit, v.Outcomes, b.left(now))
			}
		}
	}
}

// TestNothingOfOtherFigures: what was charged to a window of one length is not given back once the key is counted
// in windows of another: the count would begin again.
func TestNothingOfOtherFigures(t *testing.T) {
	for _, a := range []Algorithm{FixedWindow, SlidingWindow} {
		for _, windows := range [][2]time.Duration{{time.Hour, time.Minute}, {time.Minute, time.Hour}} {
			before := &budget{limit: MustNew(Spec{Algorithm: a, Max: 10_000, Window: windows[0]})}
			now := settleStart - settleStart%Instant(time.Hour.Microseconds()) + Instant((30 * time.Minute).Microseconds())
			o := Op{Key: Key{Limit: "b"}, Limit: before.limit, Cost: 10}
			before.take([]Op{o}, now)
			after := &budget{limit: MustNew(Spec{Algorithm: a, Max: 1000, Window: windows[1]}), state: before.state}
			o.Limit, o.Cost = after.limit, 900
			after.take([]Op{o}, now+1)
			left := after.left(now + 1)
			before.state = after.state
			v := before.take([]Op{{Key: o.Key, Limit: before.limit, Cost: -9, AsOf: now}}, now+2)
			after.state = before.state
			if v.Outcomes[0].Taken != 0 || after.left(now+2) != left {
				t.Errorf("%v %v: %+v, %d left of %d", a, windows, v.Outcomes, after.left(now+2), left)
			}
		}
	}
}

func TestRenewedReservationsAreNotGivenBack(t *testing.T) {
	for _, b := range budgets(t, nil) {
		correct := b.reserve("a", 60, settleStart)
		correct.AsOf = AsLeased
		renew := Op{Key: Key{Limit: "r"}, Limit: reservations, Holder: WithAmount("a", 60)}
		if v := b.take([]Op{renew}, settleStart+1); !v.Admitted {
			t.Fatalf("%+v", v)
		}
		v := b.end(Op{Cost: -1, Ending: EndOwner, Holder: "a"}, *correct, 0, settleStart+2)
		if v.Outcomes[0].Taken != 1 || v.Outcomes[1].Taken != 0 {
			t.Errorf("%v: %+v", b.limit, v.Outcomes)
		}
	}
}

func TestLateReservationsEndTogether(t *testing.T) {
	b := budgets(t, nil)[0]
	for i := range 4 {
		b.reserve(fmt.Sprint(i), 10, settleStart.Add(time.Duration(i)*time.Second))
	}
	correct := Op{Key: Key{Limit: "b"}, Limit: b.limit, AsOf: AsLeased}
	now := settleStart.Add(8 * time.Second) // 52 to 55 s before they expire
	v := b.end(Op{Cost: -53_000, Ending: EndLate}, correct, 0, now)
	if v.Outcomes[0].Taken != 2 || v.Outcomes[1].Taken != -20 {
		t.Errorf("%+v", v.Outcomes)
	}
}

// TestSettledCostsGrantNoMore: a limit with reservations that are settled never has more
// left than if each cost had been known when it was reserved.
func TestSettledCostsGrantNoMore(t *testing.T) {
	for seed := range random.Seeds(t, uint64(random.Times(300, 20_000))) {
		r := rand.New(rand.NewPCG(seed, 0))
		for _, b := range budgets(t, r) {
			lawOfCosts(t, b, r)
		}
	}
}

func lawOfCosts(t *testing.T, b *budget, r *rand.Rand) {
	t.Helper()
	type open struct {
		holder       string
		units, spent int64
		correct      *Op
	}
	known := &budget{limit: b.limit}
	var list []open
	now := settleStart.Add(time.Duration(r.Int64N(int64(time.Minute))))
	for i := range 60 {
		now += Instant(r.Int64N(b.limit.window / 5))
		if r.IntN(2) == 0 {
			o := open{holder: fmt.Sprint(i), units: 1 + r.Int64N(b.limit.capacity)}
			o.spent = r.Int64N(o.units + 1)
			if o.correct = b.reserve(o.holder, o.units, now); o.correct != nil {
				list = append(list, o)
				if o.spent > 0 {
					known.take([]Op{{Limit: known.limit, Cost: o.spent}}, now)
				}
			}
		} else if len(list) > 0 {
			at := r.IntN(len(list))
			o := list[at]
			if r.IntN(4) == 0 {
				o.correct.AsOf = AsLeased
			}
			b.end(Op{Cost: -1, Ending: EndKnown, Holder: WithAmount(o.holder, o.units)}, *o.correct, o.spent, now)
			list = append(list[:at], list[at+1:]...)
		}
		for _, at := range []Instant{now, now + 1, now.Add(time.Second), now + Instant(b.limit.window)} {
			if got, most := b.left(at), known.left(at); got > most {
				t.Fatalf("%v, step %d: %d left, %d if the costs had been known", b.limit, i, got, most)
			}
		}
	}
}

// TestBucketsAreHeldBackByTheirOwnReservations: by one of the same key that a request takes, or by those it settles.
func TestBucketsAreHeldBackByTheirOwnReservations(t *testing.T) {
	lease := MustNew(Spec{Algorithm: Concurrency, Max: 10, Window: time.Minute})
	bucket := Op{Key: Key{"a", "b"}, Cost: 1, Limit: MustNew(Spec{Algorithm: TokenBucket, Max: 10, Window: time.Minute})}
	window := Op{Key: Key{"a", "w"}, Cost: 1, Limit: MustNew(Spec{Algorithm: FixedWindow, Max: 10, Window: time.Minute})}
	reserves := Op{Key: Key{"a", ReservationPart}, Cost: 1, Limit: lease, Holder: WithAmount("holder", 5)}
	flight, asks, other, settles := reserves, reserves, reserves, window
	flight.Holder, asks.Cost, other.Key.Group, settles.AsOf = "holder", 0, "other", AsLeased
	for _, c := range []struct {
		name string
		ops  []Op
		want int // of the first
	}{
		{"takes a reservation", []Op{bucket, reserves}, 1},
		{"the first of those that it takes", []Op{bucket, flight, reserves, reserves}, 2},
		{"a request in flight", []Op{bucket, flight}, -1},
		{"a question about one", []Op{bucket, asks}, -1},
		{"of another key", []Op{bucket, other}, -1},
		{"no bucket", []Op{window, reserves}, -1},
		{"alone", []Op{bucket}, -1},
		{"a settlement of others", []Op{bucket, window, settles}, 0},
	} {
		if got := HeldBy(c.ops, 0); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestAmounts(t *testing.T) {
	for _, n := range []int64{0, 1, 255, 1 << 40, maxExact} {
		if got := Amount(WithAmount("a~b", n)); got != n || len(WithAmount("", n)) > MaxAmountLen {
			t.Errorf("%d is read as %d", n, got)
		}
	}
	for _, s := range []string{"", "a", "~", "a~", "a~g", "a~-1", "~fffffffffffffffff"} {
		if n := Amount(s); n != 0 {
			t.Errorf("%q is %d", s, n)
		}
	}
	if Amount("~7fffffffffffff") != maxExact {
		t.Error("an amount that no limit has")
	}
}

// TestDroppedBucketStaysHeldBack: a store drops the state of a bucket that is full. What open reservations may give
// back is still no room for others: with them, no more is reserved than the bucket has.
func TestDroppedBucketStaysHeldBack(t *testing.T) {
	b := budget{limit: debt(t, Spec{Algorithm: TokenBucket, Max: 100, Window: time.Second})}
	now := settleStart
	first := b.reserve("a", 60, now)
	b.state, now = State{}, now+Instant(2*time.Second/time.Microsecond)
	if second := b.reserve("b", 41, now); second != nil {
		t.Error("41 units are reserved of 100, of which 60 may come back")
	}
	if second := b.reserve("c", 40, now); second == nil {
		t.Error("40 units are not reserved of 100, of which 60 may come back")
	}
	b.end(Op{Cost: -1, Holder: WithAmount("a", 60), Ending: EndKnown}, *first, 0, now)
	if left := b.left(now); left != 60 {
		t.Errorf("%d units are left, want 60", left)
	}
}
