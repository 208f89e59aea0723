package limit

import (
	"math"
	"strconv"
	"testing"
	"time"
)

// TestOverflowStory is the sequence of docs/algorithms.md: 21 per hour, and costs of
// ten.
func TestOverflowStory(t *testing.T) {
	const h = 3_600_000_000
	l := func(o Overflow) *Limit {
		return MustNew(Spec{Algorithm: FixedWindow, Max: 21, Window: time.Hour, Overflow: o})
	}
	over := func(taken int64, retry, reset time.Duration) Outcome {
		return Outcome{Taken: taken, Retry: retry, Reset: reset}
	}
	tell(t, l(Refuse), State{},
		line{5 * h, 10, yes(11, 0, time.Hour)},
		line{5 * h, 10, yes(1, time.Hour, time.Hour)},
		line{5 * h, 10, no(1, time.Hour, time.Hour)},
		line{5 * h, 0, yes(1, 0, time.Hour)}, // for ever
	)
	tell(t, l(Saturate), State{},
		line{5 * h, 10, yes(11, 0, time.Hour)},
		line{5 * h, 10, yes(1, time.Hour, time.Hour)},
		line{5 * h, 10, over(1, time.Hour, time.Hour)},
		line{5 * h, 0, no(0, time.Hour, time.Hour)},
		line{5 * h, 10, no(0, time.Hour, time.Hour)},
		line{5 * h, 10_000, no(0, Never, time.Hour)},
		line{6 * h, 21, yes(0, time.Hour, time.Hour)},
	)
	tell(t, l(Debt), State{},
		line{5 * h, 20, yes(1, time.Hour, time.Hour)},
		line{5 * h, 10, over(10, time.Hour, 2*time.Hour)}, // 30 of 21
		line{5 * h, 0, no(0, time.Hour, 2*time.Hour)},
		line{5 * h, 100, over(12, Never, 2*time.Hour)}, // 42: as much as may be owed
		line{5 * h, 1, no(0, 2*time.Hour, 2*time.Hour)},
		line{6 * h, 0, no(0, time.Hour, time.Hour)},
		line{6*h + h/2, -1, yes(1, 0, time.Hour/2)},
		line{7 * h, 21, yes(0, time.Hour, time.Hour)},
	)
}

// TestBucketDebtStory: 1,000 per minute, and an answer that costs 10,000.
func TestBucketDebtStory(t *testing.T) {
	const s = 1_000_000
	l := MustNew(Spec{Algorithm: TokenBucket, Max: 1000, Window: time.Minute, Overflow: Debt, MaxDebt: 20_000})
	tell(t, l, State{},
		line{100 * s, 10_000, Outcome{Taken: 10_000, Retry: Never, Reset: 10 * time.Minute}},
		line{100 * s, 0, no(0, 9*time.Minute+60*time.Millisecond, 10*time.Minute)},
		line{400 * s, 0, no(0, 4*time.Minute+60*time.Millisecond, 5*time.Minute)},
		line{400 * s, -1000, no(0, 3*time.Minute+60*time.Millisecond, 4*time.Minute).admitted()},
		line{580 * s, 0, no(0, 60*time.Millisecond, time.Minute)},
		line{580*s + 60_000, 1, yes(0, 60*time.Millisecond, time.Minute)},
		line{640 * s, 1, yes(998, 0, 120*time.Millisecond)},
	)
}

func (o Outcome) admitted() Outcome {
	o.Admitted = true
	return o
}

// TestLogDebtStory: 4 per minute, taken one by one; three that are owed make each
// of them leave three quarters of a minute later.
func TestLogDebtStory(t *testing.T) {
	const s = 1_000_000
	l := MustNew(Spec{Algorithm: SlidingLog, Max: 4, Window: time.Minute, Overflow: Debt})
	tell(t, l, State{},
		line{100 * s, 1, yes(3, 0, time.Minute)},
		line{110 * s, 1, yes(2, 0, time.Minute)},
		line{120 * s, 1, yes(1, 0, time.Minute)},
		line{130 * s, 4, Outcome{Taken: 4, Retry: 105 * time.Second, Reset: 105 * time.Second}},
		line{130 * s, 0, no(0, 75*time.Second, 105*time.Second)},
		line{204 * s, 0, no(0, time.Second, 31*time.Second)},
		line{205 * s, 0, yes(1, 0, 30*time.Second)},
		line{215 * s, 0, yes(2, 0, 20*time.Second)},
	)
}

// TestLawSaturate: what a refused cost takes is what Refuse would admit, all of
// it, and no more.
func TestLawSaturate(t *testing.T) {
	walks(t, walkLength, func(t *testing.T, w *walk, cost int64) {
		if w.l.Overflow() != Saturate {
			return
		}
		_, left := try(w.s, w.l, 0, w.now)
		s, out := try(w.s, w.l, cost, w.now)
		if out.Admitted {
			twin, same := try(w.s, w.l.Strict(), cost, w.now)
			if !equal(s, twin) || out != same {
				t.Errorf("%+v, %+v, without overflow %+v, %+v", s, out, twin, same)
			}
			return
		}
		if out.Remaining != 0 || out.Taken != left.Remaining {
			t.Errorf("%+v where %d were left", out, left.Remaining)
		}
		if out.Taken == 0 {
			return
		}
		twin, taken := try(w.s, w.l.Strict(), left.Remaining, w.now)
		_, peek := try(s, w.l, 0, w.now)
		_, same := try(twin, w.l.Strict(), 0, w.now)
		if !taken.Admitted || !equal(s, twin) || peek != same {
			t.Errorf("%+v, %+v, but who takes what is left leaves %+v, %+v", s, peek, twin, same)
		}
	})
}

// TestLawOneIsRefused: a cost of one under Saturate changes nothing that Refuse
// does not.
func TestLawOneIsRefused(t *testing.T) {
	walks(t, walkLength, func(t *testing.T, w *walk, _ int64) {
		if w.l.Overflow() != Saturate {
			return
		}
		s, out := try(w.s, w.l, 1, w.now)
		if twin, same := try(w.s, w.l.Strict(), 1, w.now); !equal(s, twin) || out != same {
			t.Errorf("%+v, %+v, without overflow %+v, %+v", s, out, twin, same)
		}
	})
}

// TestLawDebtIsPaidInItsTime: for x units that are owed a key is as good as unused
// later by the time in which the limit gives x units, and not by more.
func TestLawDebtIsPaidInItsTime(t *testing.T) {
	r := seeded(t)
	for _, l := range lawLimits(t) {
		if l.MaxDebt() == 0 {
			continue
		}
		for range 50 {
			now := Instant(r.Int64N(int64(MaxInstant / 4)))
			full, _ := Step(State{}, &Op{Limit: l, Cost: l.Capacity()}, now)
			_, before := try(full, l, 0, now)
			x := 1 + r.Int64N(l.MaxDebt())
			s, out := try(full, l, x, now)
			want := before.Reset + micros(ceilDiv(x, l.Capacity())*l.window)
			if !l.Is(Windowed) {
				want = before.Reset + micros(ceilDiv(x*l.num, l.den))
				if l.Algorithm() == TokenBucket {
					want = micros(ceilDiv(l.full+x*l.num, l.den))
				}
			}
			if out.Admitted || out.Taken != x || out.Reset != want && !(l.num < l.den && out.Reset == want+us) {
				t.Fatalf("%v owes %d: %+v, want Reset %v", l, x, out, want)
			}
			if _, then := try(s, l, l.Capacity(), now.Add(out.Reset)); !then.Admitted {
				t.Fatalf("%v owed %d: after %v still %+v", l, x, out.Reset, then)
			}
		}
	}
}

// TestLawDebtIsBounded: whatever is asked, over any time no more is taken than the
// limit gives, and what may be owed.
func TestLawDebtIsBounded(t *testing.T) {
	r := seeded(t)
	for _, l := range lawLimits(t) {
		if l.MaxDebt() == 0 {
			continue
		}
		w := newWalk(r, l)
		w.refunds, w.back = false, false
		begun, taken := w.now, int64(0)
		for range walkLength {
			last := w.now
			w.move()
			if w.now < last {
				begun, taken = w.now, 0
			}
			cost := pick(r, w.cost(), 1+r.Int64N(l.Capacity()+l.MaxDebt()+2), math.MaxInt64)
			out := w.record(max(cost, 0))
			taken += out.Taken
			if out.Admitted {
				taken += max(cost, 0)
			}
			windows := 2 + float64(w.now-begun)/float64(l.window)
			if most := float64(l.MaxDebt()) + float64(l.Capacity()) + float64(l.Max())*windows; float64(taken) > most {
				t.Fatalf("%v: %d taken in %d µs, at most %f", l, taken, w.now-begun, most)
			}
		}
	}
}

// TestLogThatOwesIsShort: a log that owes has no more records than documented.
func TestLogThatOwesIsShort(t *testing.T) {
	l := MustNew(Spec{Algorithm: SlidingLog, Max: 10_000, Window: time.Hour, Overflow: Debt, MaxDebt: 1 << 20})
	var s State
	for i := range 9000 {
		s, _ = Step(s, &Op{Limit: l, Cost: 1}, benchStart+Instant(i))
	}
	for i := range 10_000 {
		s, _ = Step(s, &Op{Limit: l, Cost: 2000}, benchStart+Instant(9000+i))
		if len(s.Log) > debtRecords {
			t.Fatalf("%d records after %d reports", len(s.Log), i+1)
		}
	}
}

// TestAttackOnDebt: the largest hits there are, ten thousand times, owe max_debt and
// no more, under each algorithm; a clock that steps back and a limit that shrinks
// lock nobody out for longer than that.
func TestAttackOnDebt(t *testing.T) {
	for _, a := range Algorithms() {
		for _, step := range []time.Duration{0, -time.Second, -time.Hour, -year} {
			t.Run(a.String()+"/"+step.String(), func(t *testing.T) {
				l := MustNew(Spec{Algorithm: a, Max: 100, Window: time.Second, Overflow: Debt, MaxDebt: 300})
				var s State
				var taken int64
				for range 10_000 {
					var out Outcome
					s, out = Step(s, &Op{Limit: l, Cost: math.MaxUint32}, benchStart)
					taken += out.Taken
				}
				if taken != 400 {
					t.Errorf("%d taken of 100 and 300", taken)
				}
				if step == -year { // once it is longer than what is owed, the clock is known to be wrong
					s, _ = try(s, l, 0, benchStart.Add(step))
				}
				now := benchStart.Add(step)
				s, out := try(s, l, 1, now)
				if out.Admitted || out.Retry > 10*time.Second {
					t.Errorf("%+v", out)
				}
				one := MustNew(Spec{Algorithm: a, Max: 1, Window: time.Second, Overflow: Debt})
				if _, out := try(s, one, 0, now); out.Admitted || out.Retry > 12*time.Second {
					t.Errorf("with a limit of one: %+v", out)
				}
				strict := MustNew(Spec{Algorithm: a, Max: 1, Window: time.Second})
				if _, out := try(s, strict, 0, now); out.Admitted || out.Retry > 12*time.Second {
					t.Errorf("with a limit of one that refuses: %+v", out)
				}
			})
		}
	}
}

// TestReplicasWithDifferentOverflow: replicas that disagree never admit more than
// the limit, whatever one of them has others owe.
func TestReplicasWithDifferentOverflow(t *testing.T) {
	r := seeded(t)
	for _, a := range Algorithms() {
		var limits []*Limit
		for o := Refuse; o <= Debt; o++ {
			limits = append(limits, MustNew(Spec{Algorithm: a, Max: 10, Window: time.Second, Overflow: o}))
		}
		var s State
		now, admitted := benchStart, map[Instant]int64{}
		for i := range 20_000 {
			now += Instant(r.IntN(100_000))
			cost := 1 + r.Int64N(20)
			var out Outcome
			if s, out = Step(s, &Op{Limit: pick(r, limits...), Cost: cost}, now); out.Admitted {
				admitted[now/1_000_000] += cost
			}
			if n := admitted[now/1_000_000]; n > 20 {
				t.Fatalf("%v, op %d: %d admitted in a second", a, i, n)
			}
		}
	}
}

// TestReportsDoNotUndoEachOther: two descriptors get a report, one of them has no
// room. With Each both are charged; without it the one that has room is not, and
// the other takes what its overflow says in both cases.
func TestReportsDoNotUndoEachOther(t *testing.T) {
	for _, a := range Algorithms() {
		for _, o := range []Overflow{Saturate, Debt} {
			for _, each := range []bool{false, true} {
				t.Run(a.String()+"/"+o.String()+"/"+strconv.FormatBool(each), func(t *testing.T) {
					narrow := MustNew(Spec{Algorithm: a, Max: 10, Window: time.Hour, Overflow: o})
					wide := MustNew(Spec{Algorithm: a, Max: 100, Window: time.Hour, Overflow: o})
					ops := []Op{
						{Key: Key{Limit: "narrow"}, Limit: narrow, Cost: 15, Each: each},
						{Key: Key{Limit: "wide"}, Limit: wide, Cost: 15, Each: each},
					}
					states, v := decide(make([]State, 2), ops, benchStart)
					taken, left := int64(10), int64(100)
					if o == Debt {
						taken = 15
					}
					if each {
						left = 85
					}
					if v.Admitted || v.Outcomes[0].Admitted || v.Outcomes[0].Taken != taken {
						t.Errorf("%+v", v)
					}
					if _, out := try(states[0], narrow, 0, benchStart); out.Remaining != 0 {
						t.Errorf("%+v", out)
					}
					if _, out := try(states[1], wide, 0, benchStart); out.Remaining != left || v.Outcomes[1].Remaining != left {
						t.Errorf("%+v, %+v", out, v.Outcomes[1])
					}
				})
			}
		}
	}
}

// TestShadowOverflows: a limit that refuses nobody, in shadow or quota mode, takes
// what its overflow says, whatever becomes of the request.
func TestShadowOverflows(t *testing.T) {
	narrow := MustNew(Spec{Algorithm: FixedWindow, Max: 10, Window: time.Hour, Overflow: Saturate})
	full := MustNew(Spec{Algorithm: FixedWindow, Max: 0, Window: time.Hour})
	for _, refused := range []bool{false, true} {
		ops := []Op{{Key: Key{Limit: "narrow"}, Limit: narrow, Cost: 20, Shadow: true}}
		if refused {
			ops = append(ops, Op{Key: Key{Limit: "full"}, Limit: full, Cost: 1})
		}
		states, v := decide(make([]State, len(ops)), ops, benchStart)
		if v.Admitted == refused || v.Outcomes[0].Taken != 10 || states[0].N != 10 {
			t.Errorf("%+v, %+v", v, states[0])
		}
	}
}

// TestDebtTable is the table of docs/algorithms.md: 10 per minute, all taken at
// 12:00:00, and 20 owed. What is left at some times after that.
func TestDebtTable(t *testing.T) {
	noon := Instant(1_700_000_000_000_000)
	noon -= noon % micro(12*time.Hour)
	for a, left := range map[Algorithm]map[time.Duration]int64{
		FixedWindow: {3*time.Minute - us: 0, 3 * time.Minute: 10},
		SlidingWindow: {3 * time.Minute: 0, 3*time.Minute + 6*time.Second + 100*us: 1, 4*time.Minute - us: 9,
			4 * time.Minute: 10},
		TokenBucket: {2 * time.Minute: 0, 2*time.Minute + 6*time.Second: 1, 3*time.Minute - us: 9, 3 * time.Minute: 10},
		SlidingLog:  {3*time.Minute - us: 0, 3 * time.Minute: 10},
	} {
		l := MustNew(Spec{Algorithm: a, Max: 10, Window: time.Minute, Overflow: Debt, MaxDebt: 100})
		s := tell(t, l, State{}, line{noon, 10, first(Step(State{}, &Op{Limit: l.Strict(), Cost: 10}, noon))})
		s, out := Step(s, &Op{Limit: l, Cost: 20}, noon)
		if out.Taken != 20 {
			t.Errorf("%v: %+v", a, out)
		}
		for d, n := range left {
			if _, out := try(s, l, 0, noon+micro(d)); out.Remaining != n {
				t.Errorf("%v, %v later: %d left, want %d", a, d, out.Remaining, n)
			}
		}
	}
}

func first(_ State, out Outcome) Outcome { return out }
