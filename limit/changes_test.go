package limit

import (
	"testing"
	"time"
)

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
