package limit

import (
	"testing"
	"time"
)

// TestEachAlgorithmHasACompleteRow: names and key letters are unique, and what
// decisions call is there.
func TestEachAlgorithmHasACompleteRow(t *testing.T) {
	names, letters := map[string]bool{}, map[string]bool{}
	for _, a := range AllAlgorithms() {
		r := a.row()
		if r.name == "" || names[r.name] {
			t.Errorf("algorithm %d has no name of its own: %q", a, r.name)
		}
		if len(r.letter) != 1 || letters[r.letter] {
			t.Errorf("%v has no key letter of its own: %q", a, r.letter)
		}
		if r.most < 1 || r.ends == nil || (r.moveTo == nil) != a.Is(Leased) {
			t.Errorf("the row of %v is incomplete: %+v", a, r)
		}
		names[r.name], letters[r.letter] = true, true
	}
}

// TestEachAlgorithmIsStepped: no algorithm is forgotten where states are stepped.
func TestEachAlgorithmIsStepped(t *testing.T) {
	for _, a := range AllAlgorithms() {
		l := MustNew(Spec{Algorithm: a, Max: 2, Window: time.Second})
		s, out := Step(State{}, &Op{Limit: l, Cost: 1, Holder: "h"}, benchStart)
		if !out.Admitted || out.Remaining != 1 || l.Ends(s) <= benchStart {
			t.Errorf("%v: the first of two units: %+v, ends at %d", a, out, l.Ends(s))
		}
	}
}
