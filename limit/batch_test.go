package limit

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestBatchesDecideLikeSingles: a slice over states that are written and read
// back gives the answers of its requests one by one, and writes each state that
// an answer depends on.
func TestBatchesDecideLikeSingles(t *testing.T) {
	r := seeded(t)
	var limits []*Limit
	for _, a := range AllAlgorithms() {
		limits = append(limits, MustNew(Spec{Algorithm: a, Max: 5, Window: time.Second}))
	}
	held := MustNew(Spec{Algorithm: Concurrency, Max: 2, Window: time.Second, Hold: time.Second})
	limits = append(limits, held)
	rows, model := map[Key][]byte{}, map[Key]State{}
	var b Batch
	now := benchStart
	for range 3000 {
		b.Reset()
		reqs := make([]Request, 1+r.IntN(5))
		got := make([]Verdict, len(reqs))
		for i := range reqs {
			for range 1 + r.IntN(4) {
				at := r.IntN(len(limits))
				op := randomOp(r, limits[at])
				op.Key = Key{Group: strconv.Itoa(r.IntN(3)), Limit: strconv.Itoa(at)}
				op.Shadow, op.Each = r.IntN(5) == 0, r.IntN(5) == 0
				reqs[i].Ops = append(reqs[i].Ops, op)
			}
			b.Add(&reqs[i], &got[i])
		}
		keys := b.Keys()
		if !slices.IsSortedFunc(keys, func(a, b Key) int {
			return slices.Compare([]string{a.Group, a.Limit}, []string{b.Group, b.Limit})
		}) {
			t.Fatalf("keys are not in order: %q", keys)
		}
		for i, k := range keys {
			if i > 0 && keys[i-1] == k {
				t.Fatalf("%q is there twice", k)
			}
			if data, ok := rows[k]; ok {
				var s State
				if err := s.UnmarshalBinary(data); err != nil {
					t.Fatal(err)
				}
				b.Put(i, s)
			}
		}
		b.Decide(now)
		for i, c := range b.Changed() {
			if c.Key != keys[i] {
				t.Fatalf("change of %q at %d, where %q is", c.Key, i, keys[i])
			}
			rows[c.Key], _ = c.State.AppendBinary(nil)
		}
		for i := range reqs {
			want := decideOn(model, &reqs[i], now)
			if want.Admitted != got[i].Admitted || !slices.Equal(want.Outcomes, got[i].Outcomes) {
				t.Fatalf("at %d: %+v\ngot  %+v\nwant %+v", now, reqs[i], got[i], want)
			}
		}
		now += Instant(r.Int64N(400_000))
	}
}

// decideOn decides req on the states of a map, and keeps all of them.
func decideOn(model map[Key]State, req *Request, now Instant) (v Verdict) {
	states := make([]State, len(req.Ops))
	for i := range states {
		states[i] = model[req.Ops[i].Key]
	}
	Decide(states, req, now, &v, nil)
	for i := range states {
		if firstWithKey(req.Ops, i) == i {
			model[req.Ops[i].Key] = states[i]
		}
	}
	return v
}

// TestRefusedRequestsChangeNoState: what a store need not write is not among the
// changes of a decision.
func TestRefusedRequestsChangeNoState(t *testing.T) {
	for _, a := range AllAlgorithms() {
		l, none := MustNew(Spec{Algorithm: a, Max: 2, Window: time.Second}),
			MustNew(Spec{Algorithm: FixedWindow, Window: time.Second})
		ops := []Op{{Key: Key{Limit: "a"}, Limit: l, Cost: 1, Holder: "1"}, {Key: Key{Limit: "b"}, Limit: none}}
		for _, ask := range []struct {
			what string
			ops  []Op
			want Changes
		}{
			{"an admitted op", ops[:1], 1},
			{"a request that another op refuses", []Op{{Key: ops[0].Key, Limit: l, Cost: 1, Holder: "2"}, ops[1]}, 0},
			{"a question", []Op{{Key: ops[0].Key, Limit: l}}, 0},
			{"a cost that never fits", []Op{{Key: ops[0].Key, Limit: none, Cost: 1}}, 0},
		} {
			if a.Is(Leased) && ask.ops[0].Limit == none {
				continue
			}
			states := make([]State, len(ask.ops))
			if ask.want == 0 {
				states[0], _ = Step(State{}, &ops[0], benchStart)
			}
			var v Verdict
			if got := Decide(states, &Request{Ops: ask.ops}, benchStart+1, &v, nil); got != ask.want {
				t.Errorf("%v, %s: changes %b, want %b; %+v", a, ask.what, got, ask.want, v)
			}
		}
	}
}

// TestForgivenRefusalsAreAChange: a remembered refusal that is given back must be
// written, though no lease has changed.
func TestForgivenRefusalsAreAChange(t *testing.T) {
	l := MustNew(Spec{Algorithm: Concurrency, Window: time.Second, Hold: time.Second})
	states, v := make([]State, 1), Verdict{}
	for _, op := range []Op{{Limit: l, Cost: 1, Holder: "a"}, {Limit: l, Cost: -1}} {
		if !Decide(states, &Request{Ops: []Op{op}}, benchStart, &v, nil).Has(0) {
			t.Errorf("cost %d: the state has changed, and is not said to", op.Cost)
		}
	}
}
