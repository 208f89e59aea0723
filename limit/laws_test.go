package limit

import (
	"math/big"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
)

// walkLength is how many steps a walk has.
var walkLength = random.Times(150, 400)

func TestLawRetry(t *testing.T) {
	walks(t, walkLength, func(t *testing.T, w *walk, cost int64) {
		s, out := try(w.s, w.l, cost, w.now)
		n := max(cost, 1)
		switch {
		case n > w.l.Capacity():
			if out.Retry != Never {
				t.Errorf("Retry %v, want Never", out.Retry)
			}
			return
		case out.Retry < 0:
			t.Errorf("Retry %v for a cost within the limit", out.Retry)
			return
		case !out.Admitted && out.Retry == 0:
			t.Error("refused without a wait")
		}
		if _, then := try(s, w.l, n, w.now.Add(out.Retry)); !then.Admitted {
			t.Errorf("Retry %v is not enough: then %+v", out.Retry, then)
		}
		if out.Retry > 0 {
			if _, then := try(s, w.l, n, w.now.Add(out.Retry)-1); then.Admitted {
				t.Errorf("Retry %v is 1 µs too long", out.Retry)
			}
		}
	})
}

func TestLawRefusalAndPeekChangeNothing(t *testing.T) {
	walks(t, walkLength, func(t *testing.T, w *walk, cost int64) {
		var peek Outcome
		w.s, peek = try(w.s, w.l, 0, w.now) // a clock that stepped back may have moved it
		before := clone(w.s)
		// Not on a copy: what is behind the log must not matter either.
		after, out := Step(w.s, &Op{Limit: w.l, Cost: cost}, w.now)
		if (!out.Admitted || cost == 0) && out.Taken == 0 {
			if !equal(before, after) {
				t.Errorf("state became %+v", after)
			}
			if out.Remaining != peek.Remaining || out.Reset != peek.Reset {
				t.Errorf("%+v, but a peek says %+v", out, peek)
			}
		}
		if !equal(before, w.s) {
			t.Errorf("the old state was changed: %+v, was %+v", w.s, before)
		}
		_, again := try(w.s, w.l, 0, w.now)
		if peek != again {
			t.Errorf("a peek says %+v, earlier %+v", again, peek)
		}
	})
}

func TestLawRemaining(t *testing.T) {
	walks(t, walkLength, func(t *testing.T, w *walk, cost int64) {
		s, out := try(w.s, w.l, cost, w.now)
		left := out.Remaining
		if left < 0 || left > w.l.Capacity() {
			t.Errorf("%d remain of %d", left, w.l.Capacity())
		}
		if out.Admitted && cost > 0 && left > w.l.Capacity()-cost {
			t.Errorf("%d remain of %d after taking %d", left, w.l.Capacity(), cost)
		}
		if left > 0 {
			if _, then := try(s, w.l, left, w.now); !then.Admitted || then.Remaining != 0 {
				t.Errorf("%d remain, but a cost of that gets %+v", left, then)
			}
		}
		if _, then := try(s, w.l, left+1, w.now); then.Admitted {
			t.Errorf("%d remain, but one more is admitted", left)
		}
	})
}

// TestLawRoomGrows: without takes, time only ever makes room.
func TestLawRoomGrows(t *testing.T) {
	walks(t, walkLength, func(t *testing.T, w *walk, cost int64) {
		s, out := try(w.s, w.l, cost, w.now)
		left, at := out.Remaining, w.now
		window := micro(w.l.Window())
		for range 8 {
			at += pick(w.r, 1, window/7, window-1, window-at%window-1, window-at%window)
			_, peek := try(s, w.l, 0, at)
			if peek.Remaining < left {
				t.Errorf("%d remain at %d, later only %d at %d", left, w.now, peek.Remaining, at)
			}
			left = peek.Remaining
		}
	})
}

// asUnused reports whether s answers like the zero state at instant at.
func asUnused(w *walk, s State, at Instant) bool {
	for _, cost := range []int64{0, 1, w.l.Capacity(), w.l.Capacity() + 1, -1} {
		_, used := try(s, w.l, cost, at)
		_, unused := try(State{}, w.l, cost, at)
		if used != unused {
			return false
		}
	}
	return true
}

func TestLawReset(t *testing.T) {
	walks(t, walkLength, func(t *testing.T, w *walk, cost int64) {
		s, out := try(w.s, w.l, cost, w.now)
		if out.Reset < 0 {
			t.Errorf("Reset %v", out.Reset)
		}
		at := w.now.Add(out.Reset)
		if out.Reset == 0 {
			at = max(at, s.At) // time does not run backwards for an unused key either
		}
		if !asUnused(w, s, at) {
			t.Errorf("after Reset %v not as good as unused", out.Reset)
		}
		if w.l.Algorithm() == FixedWindow {
			if start, _ := newNaive(w.l).bounds(int64(at)); out.Reset == 0 || int64(at) != start {
				t.Errorf("Reset %v does not lead to the end of the window", out.Reset)
			}
			return
		}
		if out.Reset > 0 && asUnused(w, s, at-1) {
			t.Errorf("as good as unused before Reset %v", out.Reset)
		}
	})
}

func TestLawEnds(t *testing.T) {
	walks(t, walkLength, func(t *testing.T, w *walk, cost int64) {
		s, out := try(w.s, w.l, cost, w.now)
		ends := w.l.Ends(s)
		window := micro(w.l.Window())
		for _, at := range []Instant{ends, ends + 1, ends + window, ends + Instant(w.r.Int64N(3*int64(window)))} {
			if !asUnused(w, s, at) {
				t.Errorf("ends at %d, but still matters at %d", ends, at)
			}
		}
		reset := w.now.Add(out.Reset)
		if ends < reset && !asUnused(w, s, reset-1) {
			t.Errorf("ends at %d, but is in use until %d", ends, reset)
		}
		// Where anything counts against the limit, the end is the reset: no
		// store has to keep more than that.
		if full := w.l.Capacity(); out.Remaining < full && ends != reset {
			t.Errorf("ends at %d, reset is at %d", ends, reset)
		}
	})
}

func TestLawRefund(t *testing.T) {
	walks(t, walkLength, func(t *testing.T, w *walk, n int64) {
		n = max(n, 1)
		_, before := try(w.s, w.l, 0, w.now)
		if s, out := try(w.s, w.l, n, w.now); out.Admitted {
			// Giving back at once is as if nothing had been taken.
			s, _ = try(s, w.l, -n, w.now)
			if _, after := try(s, w.l, 0, w.now); after != before && w.l.MaxDebt() == 0 {
				t.Errorf("after taking and giving back %d: %+v, before %+v", n, after, before)
			}
		}
		s, out := try(w.s, w.l, -n, w.now)
		if !out.Admitted {
			t.Error("a refund was refused")
		}
		gained := out.Remaining - before.Remaining
		full := w.l.Capacity() - before.Remaining
		switch {
		case gained < 0 || gained > min(n, full):
			t.Errorf("giving back %d of at most %d gained %d", n, full, gained)
		case w.l.Algorithm() != SlidingWindow && gained != min(n, full) && w.l.MaxDebt() == 0:
			t.Errorf("giving back %d of at most %d gained only %d", n, full, gained)
		}
		if _, then := try(s, w.l, w.l.Capacity()+1, w.now); then.Admitted {
			t.Error("a refund left more than an unused key has")
		}
	})
}

// TestLawSlidingLogIsExact: by brute force over all that was
// admitted, no half-open interval (t-W, t] holds more than Max, and nothing is
// refused that would have fitted.
func TestLawSlidingLogIsExact(t *testing.T) {
	r := seeded(t)
	for _, l := range lawLimits(t) {
		if l.Algorithm() != SlidingLog || l.Overflow() != Refuse {
			continue
		}
		w := newWalk(r, l)
		w.refunds, w.back = false, false
		var taken []Record
		for range 3 * walkLength {
			last := w.now
			w.move()
			if w.now < last {
				taken = nil // the walk began anew
			}
			var inWindow int64
			for _, rec := range taken {
				if rec.At > w.now-micro(l.Window()) && rec.At <= w.now {
					inWindow += rec.N
				}
			}
			cost := max(w.cost(), 1)
			out := w.record(cost)
			if want := inWindow+cost <= l.Max(); out.Admitted != want {
				t.Fatalf("%v: %d units in the window, cost %d admitted: %v", l, inWindow, cost, out.Admitted)
			}
			if out.Admitted {
				taken = append(taken, Record{At: w.now, N: cost})
			}
		}
	}
}

// TestLawCoarserAdmitsNoMore: a log that was made coarser has no more room than
// before at any time, the same now, and ends when it did.
func TestLawCoarserAdmitsNoMore(t *testing.T) {
	walks(t, walkLength, func(t *testing.T, w *walk, _ int64) {
		if w.l.Algorithm() != SlidingLog {
			return
		}
		c := clone(w.s).Coarser()
		if w.l.Ends(c) != w.l.Ends(w.s) || 2*len(c.Log) > len(w.s.Log)+1 {
			t.Errorf("becomes %+v", c)
		}
		for at := w.now; at <= w.now+micro(w.l.Window()); at += max(micro(w.l.Window())/16, 1) {
			_, exact := try(w.s, w.l, 0, at)
			if _, out := try(c, w.l, 0, at); out.Remaining > exact.Remaining || at == w.now && out != exact && w.now >= w.s.At &&
				len(c.Log) == len(w.s.Log) {
				t.Errorf("at %d: %+v, exactly %+v", at, out, exact)
			}
		}
	})
}

// TestLawFixedWindowCounts: no window of the grid holds more than Max, and
// nothing is refused that would have fitted.
func TestLawFixedWindowCounts(t *testing.T) {
	r := seeded(t)
	for _, l := range lawLimits(t) {
		if l.Algorithm() != FixedWindow || l.Overflow() != Refuse {
			continue
		}
		w := newWalk(r, l)
		w.refunds, w.back = false, false
		taken := map[Instant]int64{}
		for range 3 * walkLength {
			last := w.now
			w.move()
			if w.now < last {
				clear(taken)
			}
			start, _ := newNaive(l).bounds(int64(w.now))
			i := Instant(start)
			cost := max(w.cost(), 1)
			if out := w.record(cost); out.Admitted != (taken[i]+cost <= l.Max()) {
				t.Fatalf("%v: %d units in the window, cost %d admitted: %v", l, taken[i], cost, out.Admitted)
			} else if out.Admitted {
				taken[i] += cost
			}
		}
	}
}

// ratePerMicro is the nominal rate of a bucket.
func ratePerMicro(l *Limit) *big.Rat {
	return big.NewRat(l.Max(), l.Window().Microseconds())
}

// A meter checks that in every interval of a bucket's life no more was taken
// than Burst and what the nominal rate gives in its length.
type meter struct {
	l     *Limit
	rate  *big.Rat
	taken *big.Rat
	most  *big.Rat // over all starts i: rate*t_i - units taken before i
}

func newMeter(l *Limit) *meter {
	return &meter{l: l, rate: ratePerMicro(l), taken: new(big.Rat)}
}

func (m *meter) take(n int64, at Instant) bool {
	gained := new(big.Rat).Mul(m.rate, new(big.Rat).SetInt64(int64(at)))
	if from := new(big.Rat).Sub(gained, m.taken); m.most == nil || from.Cmp(m.most) > 0 {
		m.most = from
	}
	m.taken.Add(m.taken, new(big.Rat).SetInt64(n))
	// taken up to here - taken before i <= Burst + rate*(at - t_i), for all i
	excess := new(big.Rat).Sub(m.taken, gained)
	excess.Add(excess, m.most)
	return excess.Cmp(new(big.Rat).SetInt64(m.l.Capacity())) <= 0
}

func TestLawBucketNeverExceedsItsRate(t *testing.T) {
	r := seeded(t)
	for _, l := range lawLimits(t) {
		if l.Algorithm() != TokenBucket || l.Overflow() == Debt {
			continue
		}
		w, m := newWalk(r, l), newMeter(l)
		w.refunds, w.back = false, false
		for range 3 * walkLength {
			last := w.now
			w.move()
			if w.now < last {
				m = newMeter(l)
			}
			cost := max(w.cost(), 1)
			out := w.record(cost)
			if !out.Admitted {
				cost = out.Taken
			}
			if cost > 0 && !m.take(cost, w.now) {
				t.Fatalf("%v: too much admitted by %d", l, w.now)
			}
		}
	}
}

// TestLawBucketLongRun: a caller who takes each unit as soon as it comes gets
// the nominal rate to within 10^-6 and never more, whatever the rate
// leaves of a microsecond.
func TestLawBucketLongRun(t *testing.T) {
	for _, s := range []Spec{
		{Max: 7, Window: 3 * time.Second},
		{Max: 3, Window: time.Second},
		{Max: 3, Window: time.Second, Burst: 2},
		{Max: 3, Window: time.Second, Burst: 1},
		{Max: 1, Window: time.Second},
		{Max: 999983, Window: day},
		{Max: 999983, Window: day, Burst: 2},
		{Max: 999983, Window: day, Burst: 1},
		{Max: 1, Window: year},
		{Max: 1, Window: MaxWindow},
		{Max: 1, Window: MaxWindow, Burst: 14},
		{Max: 11, Window: MinWindow},
		{Max: MaxRate, Window: time.Second, Burst: 1},
		{Max: MaxRate, Window: time.Second, Burst: 10},
		{Max: MaxRate, Window: time.Second},
		{Max: MaxRate - 1, Window: time.Second, Burst: 11},
		{Max: 999983, Window: MaxWindow, Burst: 1_000_003},
		{Max: 1_000_003, Window: MaxWindow, Burst: 10_000_000},
		{Max: 1<<40 - 87, Window: MaxWindow, Burst: 100_000_000},
	} {
		s.Algorithm = TokenBucket
		l := MustNew(s)
		t.Run(l.String(), func(t *testing.T) { longRun(t, l) })
	}
}

func longRun(t *testing.T, l *Limit) {
	s, out := Step(State{}, &Op{Limit: l, Cost: l.Capacity()}, 0)
	if !out.Admitted || out.Remaining != 0 {
		t.Fatalf("emptying: %+v", out)
	}
	var now Instant
	var taken int64
	for range 20_000 {
		_, out = Step(s, &Op{Limit: l}, now)
		next := now.Add(out.Retry)
		if next >= MaxInstant {
			break
		}
		now = next
		_, out = Step(s, &Op{Limit: l}, now)
		taken += out.Remaining
		s, out = Step(s, &Op{Limit: l, Cost: out.Remaining}, now)
		if !out.Admitted {
			t.Fatalf("at %d: %+v", now, out)
		}
	}
	if taken < 14 {
		t.Fatalf("only %d units were taken", taken)
	}
	// The time that taken units should have needed, and did.
	ideal := new(big.Rat).Quo(big.NewRat(taken, 1), ratePerMicro(l))
	real := big.NewRat(int64(now), 1)
	if real.Cmp(ideal) < 0 {
		t.Errorf("%d units came in %d µs, nominal is %s", taken, now, ideal.FloatString(3))
	}
	most := new(big.Rat)
	if num, den := l.Interval(); l.full >= num+den-1 {
		most.Mul(ideal, big.NewRat(1_000_000, 1_000_000-1)).Add(most, big.NewRat(1, 1))
	} else {
		// The bucket is too small to keep what a unit that is taken at a whole
		// microsecond leaves over: up to 1 µs is lost each time.
		most.Add(ideal, big.NewRat(taken, 1))
	}
	if real.Cmp(most) > 0 {
		t.Errorf("%d units took %d µs, nominal is %s", taken, now, ideal.FloatString(3))
	}
}
