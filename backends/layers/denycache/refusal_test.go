package denycache

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// Until its wait is over, a refusal is what Step says at every instant: of the
// same cost when to ask again and when the limit is unused, of a greater one that
// it has no room either.
func TestRefusalHoldsUntilItsEnd(t *testing.T) {
	r := random.Rand(t, 3)
	told := map[limit.Algorithm]int{}
	const start = limit.Instant(1_900_000_000_000_000)
	for range 40_000 {
		a := limit.Algorithms()[r.IntN(len(limit.Algorithms()))]
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
		if !ref.learn(&op, &out, now, true) {
			continue
		}
		for range 8 {
			op := limit.Op{Limit: l, Cost: ref.cost + max(0, r.Int64N(11)-5)}
			at := now + limit.Instant(r.Int64N(2*spec.Window.Microseconds())>>r.IntN(14))
			_, want := limit.Step(state, &op, at)
			var got limit.Outcome
			if !ref.answer(op.Cost, at, &got) {
				if op.Cost == ref.cost && !want.Admitted && want.Retry == limit.Never {
					t.Fatalf("%v, cost %d: no answer %d later", l, op.Cost, at-now)
				}
				continue
			}
			told[a]++
			differs := op.Cost == ref.cost && (got.Retry != want.Retry || got.Retry != limit.Never && got.Reset != want.Reset)
			longer := want.Retry != limit.Never && (got.Retry == limit.Never || got.Retry > want.Retry)
			if want.Admitted || differs || longer || op.Cost > l.Capacity() && got.Retry != limit.Never {
				t.Fatalf("%v, refused cost %d at %d: %+v\ncost %d, %d later: %+v\nwant %+v", l, ref.cost, now, out, op.Cost,
					at-now, got, want)
			}
		}
	}
	for _, a := range limit.Algorithms() {
		t.Logf("%v: %d refusals", a, told[a])
		if told[a] < 1000 {
			t.Errorf("%v: too few refusals", a)
		}
	}
}
