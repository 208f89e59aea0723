package limit

import (
	"testing"
	"time"
)

// benchLimits are big enough that nothing is refused, or refuse everything
// after the first op.
func benchLimits(refuse bool) []*Limit {
	var all []*Limit
	for _, a := range Algorithms() {
		s := Spec{Algorithm: a, Max: 1_000_000, Window: time.Second}
		if refuse {
			s.Max, s.Window = 1, 24*time.Hour
		} else if a == SlidingLog {
			s.Max = 1000
		}
		all = append(all, MustNew(s))
	}
	return all
}

const benchStart Instant = 1_700_000_000_000_000

func BenchmarkStep(b *testing.B) {
	for _, refuse := range []bool{false, true} {
		name := "/admitted"
		if refuse {
			name = "/refused"
		}
		for _, l := range benchLimits(refuse) {
			b.Run(l.Algorithm().String()+name, func(b *testing.B) {
				b.ReportAllocs()
				op := Op{Limit: l, Cost: 1}
				now := benchStart
				s, out := Step(State{}, &op, now)
				for b.Loop() {
					now += 1001
					s, out = Step(s, &op, now)
				}
				if out.Admitted == refuse {
					b.Fatalf("%+v", out)
				}
			})
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, refuse := range []bool{false, true} {
		name := "/admitted"
		if refuse {
			name = "/refused"
		}
		limits := benchLimits(refuse)
		for _, l := range limits {
			b.Run(l.Algorithm().String()+name, func(b *testing.B) { benchDecide(b, []*Limit{l}, refuse) })
		}
		b.Run("three_ops"+name, func(b *testing.B) {
			benchDecide(b, []*Limit{limits[0], limits[2], limits[3]}, refuse)
		})
	}
}

func benchDecide(b *testing.B, limits []*Limit, refuse bool) {
	b.ReportAllocs()
	var req Request
	for _, l := range limits {
		req.Ops = append(req.Ops, Op{Key: Key{Group: "1:a1:b", Limit: l.String()}, Limit: l, Cost: 1})
	}
	states, scratch := make([]State, len(limits)), make([]State, len(limits))
	var v Verdict
	now := benchStart
	Decide(states, &req, now, &v, scratch)
	for b.Loop() {
		now += 1001
		Decide(states, &req, now, &v, scratch)
	}
	if v.Admitted == refuse {
		b.Fatalf("%+v", v)
	}
}
