package denycache

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/seed"
	"github.com/headgate-rls/headgate/limit"
)

// What a refusal tells is what Step says, at every instant from it on; also of
// a state whose instant is later. And of a fixed window and a bucket it tells
// nearly all there is.
func TestRefusalTellsWhatStepSays(t *testing.T) {
	r := seed.Rand(t, 3)
	told, untold := map[limit.Algorithm]int{}, map[limit.Algorithm]int{}
	const start = limit.Instant(1_900_000_000_000_000)
	for range 40_000 {
		a := limit.Algorithms()[r.IntN(4)]
		spec := limit.Spec{Algorithm: a, Max: 1 + r.Int64N(9), Window: time.Duration(1+r.Int64N(30)) * time.Millisecond}
		if a == limit.TokenBucket {
			spec.Max, spec.Burst = 1+r.Int64N(10_000*spec.Window.Milliseconds()), 1+r.Int64N(9)
		}
		l := limit.MustNew(spec)
		now := start + limit.Instant(r.Int64N(60_000))
		state := limit.State{}
		for range r.IntN(12) {
			state, _ = limit.Step(state, &limit.Op{Limit: l, Cost: 1 + r.Int64N(3)}, now)
			now += limit.Instant(r.Int64N(spec.Window.Microseconds()) >> r.IntN(14))
		}
		if r.IntN(4) == 0 {
			now -= limit.Instant(r.Int64N(spec.Window.Microseconds()) >> r.IntN(14))
		}
		op := limit.Op{Limit: l, Cost: 1 + r.Int64N(11)}
		_, out := limit.Step(state, &op, now)
		var ref refusal
		if !ref.learn(&op, &out, now) {
			continue
		}
		for range 8 {
			op := limit.Op{Limit: l, Cost: 1 + r.Int64N(11)}
			at := now + limit.Instant(r.Int64N(2*spec.Window.Microseconds())>>r.IntN(14))
			_, want := limit.Step(state, &op, at)
			var got limit.Outcome
			switch {
			case ref.covers(op.Cost) && ref.answer(op.Cost, at, false, &got):
				if got != want {
					t.Fatalf("%v, refused cost %d at %d: %+v\ncost %d, %d later: %+v\nwant %+v", l, ref.cost, now, out, op.Cost, at-now, got, want)
				}
				told[a]++
			case !want.Admitted:
				untold[a]++
			}
		}
	}
	for _, a := range limit.Algorithms() {
		t.Logf("%v: %d refusals told, %d not", a, told[a], untold[a])
	}
	if n := limit.TokenBucket; untold[n] > told[n]/4 {
		t.Errorf("of %v, too little is told", n)
	}
}
