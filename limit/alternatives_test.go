package limit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
)

func deepClone(states map[Key]State) map[Key]State {
	all := map[Key]State{}
	for k, s := range states {
		s.Log = slices.Clone(s.Log)
		if set := s.Leases; set != nil {
			other := &LeaseSet{scores: map[string]int64{}, queue: slices.Clone(set.queue), stale: set.stale,
				reserved: set.reserved, refused: slices.Clone(set.refused), ended: slices.Clone(set.ended)}
			for holder, score := range set.scores {
				other.scores[holder] = score
			}
			s.Leases = other
		}
		all[k] = s
	}
	return all
}

// randomChoices draws a request whose ops are about leases and units, some of them alternatives.
func randomChoices(r *rand.Rand, leases, units []*Limit) (ops []Op) {
	for range 1 + r.IntN(6) {
		i := r.IntN(len(leases) + len(units))
		key := Key{fmt.Sprintf("g%d", i%2), fmt.Sprint(i)}
		var op Op
		if i < len(leases) {
			op = randomLeaseOp(r, leases[i], key)
			if op.Cost > 0 && r.IntN(2) == 0 {
				op.Holder += fmt.Sprintf(".%x", r.IntN(4)) // reserves units
			}
		} else {
			op = Op{Key: key, Limit: units[i-len(leases)], Cost: r.Int64N(5) - 1}
		}
		op.Shadow = r.IntN(6) == 0
		if r.IntN(4) > 0 {
			op.Choice = Choice{Set: uint8(1 + r.IntN(2)), Group: uint8(r.IntN(3))}
		} else {
			op.Each = r.IntN(5) == 0
		}
		ops = append(ops, op)
	}
	return ops
}

// plainly decides those of ops that are taken, as a request without alternatives, on a copy of states.
func plainly(states map[Key]State, ops []Op, taken func(i int) bool, now Instant) (after map[Key]State, v Verdict,
	at []int) {
	after = deepClone(states)
	var plain []Op
	for _, i := range bySet(ops) {
		if taken(i) {
			op := ops[i]
			op.Choice = Choice{}
			op.Each = op.Each && ops[i].Choice.Set == 0
			plain, at = append(plain, op), append(at, i)
		}
	}
	if len(plain) > 0 {
		decideIn(after, plain, now, &v)
	}
	return after, v, at
}

func decideIn(states map[Key]State, ops []Op, now Instant, v *Verdict) {
	st := make([]State, len(ops))
	for i := range ops {
		st[i] = states[ops[i].Key]
	}
	Decide(st, &Request{Ops: ops}, now, v, nil)
	for i := range ops {
		if firstWithKey(ops, i) == i {
			states[ops[i].Key] = st[i]
		}
	}
}

// TestAlternativesAreThePlainRequest: a request with alternatives does, and says of what it charges, the same as the
// request of the charged ops alone. Of each set that is the first alternative with room.
func TestAlternativesAreThePlainRequest(t *testing.T) {
	chosen, refused, granted := 0, 0, 0
	for seed := range random.Seeds(t, uint64(random.Times(120, 3000))) {
		r := rand.New(rand.NewPCG(seed, 3))
		leases := []*Limit{randomInFlight(r), randomInFlight(r)}
		var units []*Limit
		for _, a := range Algorithms() {
			units = append(units, MustNew(Spec{Algorithm: a, Max: 1 + r.Int64N(6), Window: time.Second}))
		}
		states := map[Key]State{}
		var ops []Op
		now := Instant(1_700_000_000_000_000)
		for step := range 60 {
			now += Instant(r.Int64N(300_000))
			if step == 0 || r.IntN(4) > 0 { // else the request before is repeated
				ops = randomChoices(r, leases, units)
			}
			before := deepClone(states)
			var v Verdict
			decideIn(states, ops, now, &v)
			where := fmt.Sprintf("seed %d, step %d, at %d:%s\ngot %v %+v", seed, step, now, describeLeases(ops), v.Admitted,
				v.Outcomes)
			if grantedBefore(before, ops, now) {
				granted++
				wantOneOfEach(t, ops, &v, where)
				continue
			}
			want, ok := chosenNaively(before, ops, now)
			after, plain, at := plainly(before, ops, func(i int) bool {
				return ops[i].Choice.Set == 0 || want[ops[i].Choice]
			}, now)
			if admitted := ok && (len(at) == 0 || plain.Admitted); v.Admitted != admitted {
				t.Fatalf("%s\nwant admitted %v, with %v", where, admitted, want)
			}
			if !v.Admitted {
				refused++
				wantSame(t, states, refusedNaively(before, ops, now), ops, now, where)
				continue
			}
			chosen++
			for j, i := range at {
				out := v.Outcomes[i]
				out.Chosen = false
				if out != plain.Outcomes[j] {
					t.Fatalf("%s\nop %d: want %+v", where, i, plain.Outcomes[j])
				}
			}
			for i := range ops {
				if v.Outcomes[i].Chosen != (ops[i].Choice.Set > 0 && want[ops[i].Choice]) {
					t.Fatalf("%s\nop %d: want chosen %v", where, i, want)
				}
			}
			wantSame(t, states, after, ops, now, where)
		}
	}
	if chosen < 1000 || refused < 1000 || granted < 100 {
		t.Errorf("%d requests chose, %d were refused, %d granted before: too few", chosen, refused, granted)
	}
}

// chosenNaively returns the alternatives that have room, the first of each set, and whether all sets have one.
func chosenNaively(states map[Key]State, ops []Op, now Instant) (want map[Choice]bool, ok bool) {
	want, ok = map[Choice]bool{}, true
	found := map[uint8]bool{}
	for _, c := range choices(ops) {
		if found[c.Set] {
			continue
		}
		_, v, at := plainly(states, ops, func(i int) bool {
			return ops[i].Choice.Set == 0 || want[ops[i].Choice] || ops[i].Choice == c
		}, now)
		room := true
		for j, i := range at {
			room = room && (ops[i].Choice != c || ops[i].Shadow || v.Outcomes[j].Admitted)
		}
		found[c.Set], want[c] = room, room
	}
	for _, room := range found {
		ok = ok && room
	}
	return want, ok
}

// refusedNaively returns what is left of a refused request, but for the refusals of leases that are remembered.
func refusedNaively(states map[Key]State, ops []Op, now Instant) map[Key]State {
	after := deepClone(states)
	for i := range ops {
		if ops[i].Choice.Set == 0 && ops[i].ChargesEach() {
			decideIn(after, []Op{ops[i]}, now, &Verdict{})
		}
	}
	return after
}

func grantedBefore(states map[Key]State, ops []Op, now Instant) bool {
	st := make([]State, len(ops))
	for i := range ops {
		st[i] = states[ops[i].Key]
	}
	return repeated(st, ops, now)
}

// wantOneOfEach: a request that was granted before has an alternative in each set, one with a lease if there is any.
func wantOneOfEach(t *testing.T, ops []Op, v *Verdict, where string) {
	t.Helper()
	groups, held := map[uint8][]uint8{}, map[uint8]bool{}
	for i := range ops {
		set := ops[i].Choice.Set
		if v.Outcomes[i].Chosen && !slices.Contains(groups[set], ops[i].Choice.Group) {
			groups[set] = append(groups[set], ops[i].Choice.Group)
		}
		held[set] = held[set] || v.Outcomes[i].Held && ops[i].Cost > 0
	}
	for _, c := range choices(ops) {
		if len(groups[c.Set]) != 1 {
			t.Fatalf("%s\nset %d: chosen %v", where, c.Set, groups[c.Set])
		}
		withLease := false
		for i := range ops {
			withLease = withLease || v.Outcomes[i].Chosen && ops[i].Choice.Set == c.Set && v.Outcomes[i].Held && ops[i].Cost > 0
		}
		if held[c.Set] && !withLease {
			t.Fatalf("%s\nset %d: chosen %v, which has no lease", where, c.Set, groups[c.Set])
		}
	}
}

// wantSame compares what can be seen of states under the keys of ops.
func wantSame(t *testing.T, got, want map[Key]State, ops []Op, now Instant, where string) {
	t.Helper()
	for i := range ops {
		op := &ops[i]
		for _, later := range []Instant{now, now + 100_000, now + 1_100_000} {
			ask := Op{Key: op.Key, Limit: op.Limit}
			_, a := Step(deepClone(got)[op.Key], &ask, later)
			_, b := Step(deepClone(want)[op.Key], &ask, later)
			if refused := got[op.Key].Leases; refused != nil && len(refused.refused) > 0 {
				a.InFlight, b.InFlight = 0, 0 // the leases are compared below
			}
			if a != b {
				t.Fatalf("%s\nkey %v at %d: then %+v, want %+v", where, op.Key, later, a, b)
			}
		}
		if a, b := live(got[op.Key], now), live(want[op.Key], now); a != b {
			t.Fatalf("%s\nkey %v: leases %s, want %s", where, op.Key, a, b)
		}
	}
}

// live describes the leases of a state that have not expired.
func live(s State, now Instant) string {
	all := map[string]int64{}
	if s.Leases != nil {
		for holder, score := range s.Leases.scores {
			if expiry(score) > now {
				all[holder] = score
			}
		}
	}
	return fmt.Sprint(all)
}

func describeLeases(ops []Op) string {
	var b strings.Builder
	for i := range ops {
		op := &ops[i]
		fmt.Fprintf(&b, "\n  %d: %v %v cost %d holder %q ending %d shadow %v each %v choice %v", i, op.Key, op.Limit, op.Cost,
			op.Holder, op.Ending, op.Shadow, op.Each, op.Choice)
	}
	return b.String()
}
