package limit

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// mostWithin returns the most units of taken, which is in order of time, in
// any half-open interval (t-length, t].
func mostWithin(taken []Record, length Instant) int64 {
	var most, sum int64
	from := 0
	for _, rec := range taken {
		sum += rec.N
		for taken[from].At <= rec.At-length {
			sum -= taken[from].N
			from++
		}
		most = max(most, sum)
	}
	return most
}

// slidingBound is what docs/algorithms.md proves for an interval of length up
// to one window: Max, and of Max the share that the interval reaches into the
// current window, so Max*(1 + length/W) or less.
func slidingBound(l *Limit, length Instant) int64 {
	share := new(big.Int).Mul(big.NewInt(l.Max()), big.NewInt(int64(length-1)))
	return l.Max() + share.Quo(share, big.NewInt(int64(micro(l.Window())))).Int64()
}

// attack fills the end of one window and then takes, as late as it can within
// one window's length, all that the next one gives.
func attack(l *Limit) []Record {
	w := micro(l.Window())
	s, _ := Step(State{}, &Op{Limit: l, Cost: l.Max()}, 10*w-1)
	now := 11*w - 2
	_, out := Step(s, &Op{Limit: l}, now)
	_, second := Step(s, &Op{Limit: l, Cost: out.Remaining}, now)
	if !second.Admitted {
		return nil
	}
	return []Record{{At: 10*w - 1, N: l.Max()}, {At: now, N: out.Remaining}}
}

// TestSlidingWindowWorstCase: almost twice the limit can pass within one
// window's length, and the attack shows that the bound is tight.
func TestSlidingWindowWorstCase(t *testing.T) {
	for _, c := range []struct {
		most   int64
		window time.Duration
		want   int64
	}{
		{2, time.Second, 3},
		{10, time.Second, 19},
		{1000, time.Second, 1999},
		{1000, time.Hour, 1999},
		{1_000_000, 24 * time.Hour, 1_999_999},
		{1000, MinWindow, 1998}, // 1 unit a µs: the last 2 µs weigh 2 units
	} {
		l := MustNew(Spec{Algorithm: SlidingWindow, Max: c.most, Window: c.window})
		w := micro(c.window)
		got := mostWithin(attack(l), w)
		if got != c.want || got > slidingBound(l, w) || slidingBound(l, w) > 2*c.most-1 {
			t.Errorf("%v: the attack gets %d, want %d; the bound is %d", l, got, c.want, slidingBound(l, w))
		}
	}
}

// TestSlidingWindowBound: whatever the arrivals, no interval of any length up
// to W holds more than the bound. Bursts at the ends of windows come near it.
func TestSlidingWindowBound(t *testing.T) {
	r := seeded(t)
	for _, l := range lawLimits(t) {
		if l.Algorithm() != SlidingWindow || l.Max() == 0 {
			continue
		}
		w := newWalk(r, l)
		w.refunds, w.back = false, false
		var taken []Record
		check := func() {
			window := micro(l.Window())
			for _, length := range []Instant{1, 2, window / 100, window / 4, window / 2, window - 1, window} {
				if got := mostWithin(taken, max(length, 1)); got > slidingBound(l, max(length, 1)) {
					t.Fatalf("%v: %d units within %d µs, the bound is %d", l, got, length, slidingBound(l, max(length, 1)))
				}
			}
		}
		for range 5 * walkLength {
			last := w.now
			w.move()
			if w.now < last {
				check()
				taken = nil
			}
			cost := max(w.cost(), 1)
			if out := w.record(cost); out.Admitted {
				taken = append(taken, Record{At: w.now, N: cost})
			}
		}
		check()
	}
}

// TestBoundaryBurst: two units of time around a boundary. A fixed
// window lets twice the limit pass, the sliding ones only the limit.
func TestBoundaryBurst(t *testing.T) {
	for _, a := range Algorithms() {
		l := MustNew(Spec{Algorithm: a, Max: 100, Window: time.Second})
		var s State
		var passed int64
		for _, now := range []Instant{10_999_999, 11_000_000} {
			_, out := Step(s, &Op{Limit: l}, now)
			s, _ = Step(s, &Op{Limit: l, Cost: out.Remaining}, now)
			passed += out.Remaining
		}
		want := int64(100)
		if a == FixedWindow {
			want = 200
		}
		if passed != want {
			t.Errorf("%v: %d units in 2 µs, want %d", a, passed, want)
		}
	}
}

// A comparison of a sliding window with an exact log on the same arrivals.
type comparison struct {
	most  float64 // most units in any interval of W, over Max
	share float64 // units admitted in all, over what the log admitted
}

// compare asks both for one unit at each instant that next gives.
func compare(most int64, window time.Duration, next func(Instant) Instant) comparison {
	approximate := MustNew(Spec{Algorithm: SlidingWindow, Max: most, Window: window})
	exact := MustNew(Spec{Algorithm: SlidingLog, Max: most, Window: window})
	now := 1000 * micro(window)
	var s, log State
	var out, logOut Outcome
	var taken []Record
	var byLog int
	for range 200_000 {
		now = next(now)
		s, out = Step(s, &Op{Limit: approximate, Cost: 1}, now)
		if out.Admitted {
			taken = append(taken, Record{At: now, N: 1})
		}
		log, logOut = Step(log, &Op{Limit: exact, Cost: 1}, now)
		if logOut.Admitted {
			byLog++
		}
	}
	return comparison{
		most:  float64(mostWithin(taken, micro(window))) / float64(most),
		share: float64(len(taken)) / float64(byLog),
	}
}

// TestSlidingWindowTypicalError measures what docs/algorithms.md says of
// ordinary arrivals. They are the same in each run, and so are the figures.
func TestSlidingWindowTypicalError(t *testing.T) {
	const most, window = 1000, time.Minute
	gap := float64(micro(window)) / most
	check := func(name string, got comparison, want comparison) {
		t.Helper()
		t.Logf("%s: at most %.3f x Max within a window's length; admits %.4f of what an exact log admits", name,
			got.most, got.share)
		if got.most > want.most || got.share < want.share {
			t.Errorf("%s: worse than documented: %+v", name, want)
		}
	}
	for _, c := range []struct {
		name string
		load float64 // arrivals over the limit
		want comparison
	}{
		{"even, load 0.9", 0.9, comparison{1.01, 0.9999}},
		{"even, load 1", 1, comparison{1.05, 0.99}},
		{"even, load 1.5", 1.5, comparison{1.02, 0.99}},
		{"even, load 5", 5, comparison{1.01, 0.99}},
	} {
		r := rand.New(rand.NewPCG(1, 1))
		check(c.name, compare(most, window, func(now Instant) Instant {
			return now + Instant(r.ExpFloat64()*gap/c.load)
		}), c.want)
	}
	r := rand.New(rand.NewPCG(2, 2))
	left := 0
	check("bursts", compare(most, window, func(now Instant) Instant {
		if left > 0 {
			left--
			return now + 1000
		}
		left = r.IntN(most / 2)
		return now + Instant(r.ExpFloat64()*gap*most/4)
	}), comparison{1.7, 0.9})
}

func TestMostWithin(t *testing.T) {
	taken := []Record{{At: 1, N: 1}, {At: 3, N: 2}, {At: 5, N: 4}, {At: 5, N: 8}}
	var got []int64
	for _, length := range []Instant{1, 2, 3, 4, 5} {
		got = append(got, mostWithin(taken, length))
	}
	if want := []int64{12, 12, 14, 14, 15}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSlidingWindowWeight: the previous window's share is never rounded down,
// whether or not the grid's steps divide the window, and up by less than two
// steps of the grid and one unit.
func TestSlidingWindowWeight(t *testing.T) {
	r := seeded(t)
	for range 20_000 {
		window := MinWindow + time.Duration(r.Int64N(int64(pick(r, 10*time.Second, time.Hour, MaxWindow)))).Truncate(us)
		l := MustNew(Spec{Algorithm: SlidingWindow, Max: 1, Window: min(window, MaxWindow)})
		w := int64(micro(l.Window()))
		rest := pick(r, 1, w, w/2, 1+r.Int64N(w))
		count := pick(r, 0, 1, 2, 1000, MaxSlidingWindowUnits, r.Int64N(MaxSlidingWindowUnits))
		got := l.weigh(count, rest)
		exact := new(big.Rat).Mul(big.NewRat(count, 1), big.NewRat(rest, w))
		most := new(big.Rat).Add(exact, big.NewRat(2*count, l.cells))
		most.Add(most, big.NewRat(1, 1))
		if v := big.NewRat(got, 1); v.Cmp(exact) < 0 || v.Cmp(most) >= 0 || got > count {
			t.Fatalf("%v: %d units with %d of %d µs left weigh %d, exactly %s", l, count, rest, w, got, exact.FloatString(6))
		}
	}
}
