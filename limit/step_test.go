package limit

import (
	"math"
	"testing"
	"time"
)

// A line of a story is one op and the outcome it must have.
type line struct {
	now  Instant
	cost int64
	want Outcome
}

func yes(remaining int64, retry, reset time.Duration) Outcome {
	return Outcome{Admitted: true, Remaining: remaining, Retry: retry, Reset: reset}
}

func no(remaining int64, retry, reset time.Duration) Outcome {
	return Outcome{Remaining: remaining, Retry: retry, Reset: reset}
}

// tell plays lines on one key, from an unused one on.
func tell(t *testing.T, l *Limit, s State, lines ...line) State {
	t.Helper()
	for i, x := range lines {
		var got Outcome
		s, got = Step(s, &Op{Limit: l, Cost: x.cost}, x.now)
		if got != x.want {
			t.Fatalf("%v, line %d: cost %d at %d: %+v, want %+v", l, i+1, x.cost, x.now, got, x.want)
		}
	}
	return s
}

func TestFixedWindowStory(t *testing.T) {
	const w = 1_000_000
	l := MustNew(Spec{Algorithm: FixedWindow, Max: 3, Window: time.Second})
	tell(t, l, State{},
		line{5*w + 400_000, 0, yes(3, 0, 600_000*us)},
		line{5*w + 400_000, 1, yes(2, 0, 600_000*us)},
		line{5*w + 400_001, 3, no(2, 599_999*us, 599_999*us)}, // all or none
		line{5*w + 400_001, 4, no(2, Never, 599_999*us)},
		line{5*w + 400_001, 2, yes(0, 599_999*us, 599_999*us)},
		line{6*w - 1, 1, no(0, 1*us, 1*us)},
		line{6*w - 1, 0, no(0, 1*us, 1*us)},
		line{6 * w, 3, yes(0, time.Second, time.Second)}, // the start belongs to the window
		line{6*w + 1, -1, yes(1, 0, 999_999*us)},
		line{6*w + 1, -5, yes(3, 0, 999_999*us)}, // never below empty
		line{6*w + 1, 3, yes(0, 999_999*us, 999_999*us)},
		line{5*w + 999_000, 1, no(0, 1_001_000*us, 1_001_000*us)}, // the clock stepped back
		line{7 * w, 3, yes(0, time.Second, time.Second)},
	)
}

// TestSlidingLogStory tells a log decision by decision.
func TestSlidingLogStory(t *testing.T) {
	const s, w = 1_000_000, 60_000_000
	l := MustNew(Spec{Algorithm: SlidingLog, Max: 3, Window: time.Minute})
	tell(t, l, State{},
		line{10 * s, 1, yes(2, 0, time.Minute)},
		line{20 * s, 1, yes(1, 0, time.Minute)},
		line{70*s - 1, 1, yes(0, 1*us, time.Minute)},
		line{70*s - 1, 1, no(0, 1*us, time.Minute)}, // a refusal costs nothing
		line{70 * s, 1, yes(0, 10*time.Second, time.Minute)},
		line{70*s + 1, 2, no(0, 60*time.Second-2*us, time.Minute-1*us)},
		line{70*s + 1, 4, no(0, Never, time.Minute-1*us)},
		line{80*s - 1, 1, no(0, 1*us, 50*time.Second+1*us)},
		line{80 * s, 0, yes(1, 0, 50*time.Second)},
		line{80 * s, -1, yes(2, 0, 50*time.Second-1*us)}, // the newest goes first
		line{80 * s, -9, yes(3, 0, 0)},
		line{80 * s, 3, yes(0, time.Minute, time.Minute)},
		line{75 * s, 1, no(0, 65*time.Second, 65*time.Second)}, // the clock stepped back
		line{80*s + w - 1, 1, no(0, 1*us, 1*us)},
		line{80*s + w, 3, yes(0, time.Minute, time.Minute)},
	)
}

// TestScenarioS118: 100 per 60 s, asked at t = 70.
func TestScenarioS118(t *testing.T) {
	l := MustNew(Spec{Algorithm: SlidingLog, Max: 100, Window: time.Minute})
	const s = 1_000_000
	for _, c := range []struct {
		name     string
		edge     Instant // of one more record
		admitted bool
	}{
		{"record at the edge is out", 10 * s, true},
		{"record 1 µs inside counts", 10*s + 1, false},
	} {
		state, _ := try(State{}, l, 50, 5*s)
		state, _ = try(state, l, 1, c.edge)
		state, out := try(state, l, 49, 60*s)
		if !out.Admitted {
			t.Fatalf("%s: %+v", c.name, out)
		}
		state, out = try(state, l, 50, 69*s)
		if !out.Admitted {
			t.Fatalf("%s: %+v", c.name, out)
		}
		if _, out = try(state, l, 1, 70*s); out.Admitted != c.admitted {
			t.Errorf("%s: %+v", c.name, out)
		}
	}
}

func TestSlidingWindowStory(t *testing.T) {
	const w = 1_000_000
	l := MustNew(Spec{Algorithm: SlidingWindow, Max: 10, Window: time.Second})
	tell(t, l, State{},
		line{5*w + 999_999, 10, yes(0, 1*us+time.Second, 1*us+time.Second)},
		line{6 * w, 1, no(0, 100_000*us, time.Second)},
		line{6*w + 99_999, 1, no(0, 1*us, 900_001*us)},
		line{6*w + 100_000, 1, yes(0, 100_000*us, 1_900_000*us)},
		line{6*w + 500_000, 4, yes(0, 400_000*us, 1_500_000*us)},
		line{6*w + 500_000, 6, no(0, 700_000*us, 1_500_000*us)},
		line{6*w + 500_000, 11, no(0, Never, 1_500_000*us)},
		line{6*w + 500_000, -2, yes(2, 0, 1_500_000*us)},
		line{6*w + 500_000, -5, yes(6, 0, 500_000*us)}, // 3 of this window, 2 of the one before
		line{6*w + 500_000, -99, yes(10, 0, 0)},
		line{8 * w, 10, yes(0, 2*time.Second, 2*time.Second)},
		line{7 * w, 1, no(0, 2_100_000*us, 3*time.Second)}, // the clock stepped back
		line{10*w - 1, 10, no(9, 1*us, 1*us)},
		line{10 * w, 10, yes(0, 2*time.Second, 2*time.Second)},
	)
}

// TestTokenBucketStory tells a bucket decision by decision.
func TestTokenBucketStory(t *testing.T) {
	l := MustNew(Spec{Algorithm: TokenBucket, Max: 3, Window: time.Second, Burst: 5}) // a unit in 333333 1/3 µs
	tell(t, l, State{},
		line{10_000_000, 0, yes(5, 0, 0)},
		line{10_000_000, 6, no(5, Never, 0)},
		line{10_000_000, 5, yes(0, 1_666_667*us, 1_666_667*us)},
		line{10_000_000, 1, no(0, 333_334*us, 1_666_667*us)},
		line{10_333_333, 1, no(0, 1*us, 1_333_334*us)},
		line{10_333_334, 1, yes(0, 333_333*us, 1_666_666*us)}, // 2/3 µs are kept
		line{10_666_666, 1, no(0, 1*us, 1_333_334*us)},
		line{10_666_667, 1, yes(0, 333_333*us, 1_666_667*us)},
		line{10_666_667, -1, yes(1, 0, 1_333_333*us)},
		line{10_666_667, -99, yes(5, 0, 0)},
		line{10_666_667, 5, yes(0, 1_666_667*us, 1_666_667*us)},
		line{10_000_000, 1, no(0, 1_000_001*us, 2_333_334*us)}, // the clock stepped back
		line{12_333_334, 5, yes(0, 1_666_667*us, 1_666_667*us)},
	)
}

// TestLimitChanges: any state is met by a limit of other figures.
func TestLimitChanges(t *testing.T) {
	const now = 1_000_000_000
	bucket := func(burst int64) *Limit {
		return MustNew(Spec{Algorithm: TokenBucket, Max: 10, Window: time.Second, Burst: burst})
	}
	window := func(a Algorithm, most int64) *Limit {
		return MustNew(Spec{Algorithm: a, Max: most, Window: time.Second})
	}
	for _, c := range []struct {
		name   string
		before *Limit
		take   int64
		after  *Limit
		want   int64 // remaining at the same instant
	}{
		{"bucket: burst lowered cuts the level off", bucket(100), 10, bucket(20), 20},
		{"bucket: burst lowered below what was taken", bucket(100), 95, bucket(20), 5},
		{"bucket: burst raised grants nothing at once", bucket(20), 5, bucket(100), 15},
		{"bucket: slower rate keeps units", bucket(20), 5,
			MustNew(Spec{Algorithm: TokenBucket, Max: 1, Window: time.Hour, Burst: 20}), 15},
		{"bucket: faster rate keeps units", bucket(20), 5,
			MustNew(Spec{Algorithm: TokenBucket, Max: 7, Window: time.Second, Burst: 20}), 15},
		{"fixed: lowered", window(FixedWindow, 10), 8, window(FixedWindow, 5), 0},
		{"fixed: raised", window(FixedWindow, 10), 8, window(FixedWindow, 20), 12},
		{"log: lowered", window(SlidingLog, 10), 8, window(SlidingLog, 5), 0},
		{"log: raised", window(SlidingLog, 10), 8, window(SlidingLog, 20), 12},
		{"sliding: lowered", window(SlidingWindow, 10), 8, window(SlidingWindow, 5), 0},
		{"sliding: raised", window(SlidingWindow, 10), 8, window(SlidingWindow, 20), 12},
		{"to nothing", window(FixedWindow, 10), 8, window(FixedWindow, 0), 0},
	} {
		s, _ := try(State{}, c.before, c.take, now)
		_, out := try(s, c.after, 0, now)
		if out.Remaining != c.want {
			t.Errorf("%s: %d remain, want %d", c.name, out.Remaining, c.want)
		}
		if c.want == 0 && out.Admitted {
			t.Errorf("%s: admitted", c.name)
		}
	}
}

// TestLawsAcrossChangedLimits: Retry and Remaining keep their word on states
// that limits of other figures wrote.
func TestLawsAcrossChangedLimits(t *testing.T) {
	r := seeded(t)
	byAlgorithm := map[Algorithm][]*Limit{}
	for _, l := range lawLimits(t) {
		byAlgorithm[l.Algorithm()] = append(byAlgorithm[l.Algorithm()], l)
	}
	for _, a := range Algorithms() {
		w := newWalk(r, byAlgorithm[a][0])
		// A window that starts on another grid sets a key's clock back to its
		// own start, so the clock of this walk only moves on.
		w.back = false
		for range 20 * walkLength {
			if r.IntN(3) == 0 {
				w.l = pick(r, byAlgorithm[a]...)
			}
			w.move()
			cost := w.cost()
			stepKeepsWord(t, w.l, w.s, cost, w.now)
			w.record(cost)
			if len(w.s.Log) > 100 {
				w.s = State{}
			}
		}
	}
}

func TestLimitOfZero(t *testing.T) {
	for _, a := range []Algorithm{FixedWindow, SlidingLog, SlidingWindow} {
		l := MustNew(Spec{Algorithm: a, Max: 0, Window: time.Second})
		reset := time.Duration(0)
		if a == FixedWindow {
			reset = time.Second
		}
		tell(t, l, State{},
			line{0, 0, no(0, Never, reset)},
			line{0, 1, no(0, Never, reset)},
			line{0, math.MaxInt64, no(0, Never, reset)},
			line{0, -1, yes(0, Never, reset)}, // always admitted, gives nothing
			line{0, 1, no(0, Never, reset)},
		)
	}
}

// TestExtremesAreDecidedExactly: the ends of windows, rates, costs and time.
func TestExtremesAreDecidedExactly(t *testing.T) {
	ms := func(a Algorithm) *Limit { return MustNew(Spec{Algorithm: a, Max: 1, Window: MinWindow}) }
	tell(t, ms(FixedWindow), State{}, line{1000, 1, yes(0, time.Millisecond, time.Millisecond)},
		line{1999, 1, no(0, us, us)}, line{2000, 1, yes(0, time.Millisecond, time.Millisecond)})
	tell(t, ms(SlidingLog), State{}, line{1000, 1, yes(0, time.Millisecond, time.Millisecond)},
		line{1999, 1, no(0, us, us)}, line{2000, 1, yes(0, time.Millisecond, time.Millisecond)})
	tell(t, ms(SlidingWindow), State{}, line{1999, 1, yes(0, 1001*us, 1001*us)}, line{2999, 1, no(0, us, us)},
		line{3000, 1, yes(0, 2*time.Millisecond, 2*time.Millisecond)})

	w := micro(MaxWindow)
	tenYears := MustNew(Spec{Algorithm: FixedWindow, Max: MaxUnits, Window: MaxWindow})
	tell(t, tenYears, State{}, line{w, MaxUnits, yes(0, MaxWindow, MaxWindow)}, line{2*w - 1, 1, no(0, us, us)},
		line{2 * w, 0, yes(MaxUnits, 0, MaxWindow)})
	yearly := MustNew(Spec{Algorithm: TokenBucket, Max: 1, Window: year})
	tell(t, yearly, State{}, line{5, 1, yes(0, year, year)}, line{4 + micro(year), 1, no(0, us, us)},
		line{5 + micro(year), 1, yes(0, year, year)})
	fast := MustNew(Spec{Algorithm: TokenBucket, Max: MaxRate, Window: time.Second, Burst: 20})
	tell(t, fast, State{}, line{5, 20, yes(0, 2*us, 2*us)}, line{6, 10, yes(0, us, 2*us)}, line{7, 11, no(10, us, us)})

	for _, l := range lawLimits(t) {
		for _, now := range []Instant{math.MinInt64, -1, 0, MaxInstant, MaxInstant + 1, math.MaxInt64} {
			for _, cost := range []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64} {
				stepKeepsWord(t, l, State{}, cost, now)
			}
		}
	}
	// The first and the last instant stand for all beyond.
	l := ms(FixedWindow)
	s, _ := try(State{}, l, 1, MaxInstant)
	if _, out := try(s, l, 1, math.MaxInt64); out.Admitted {
		t.Error("time went on beyond the last instant")
	}
}

// TestForeignFigures: no state that nothing of ours wrote gives more than an
// unused key has.
func TestForeignFigures(t *testing.T) {
	for _, l := range lawLimits(t) {
		for _, at := range []Instant{math.MinInt64, -1, math.MaxInt64} {
			stepGarbage(t, l, State{At: at, M: l.num}, 1, 1_000_000)
		}
		for _, n := range []int64{-1, math.MinInt64} {
			s := State{At: 1_000_000, N: n, M: n, Log: []Record{{At: 1_000_000, N: n}}}
			_, out := try(s, l, l.Capacity()+1, 1_000_000)
			if out.Admitted || out.Remaining > l.Capacity() {
				t.Errorf("%v, figures %d: %+v", l, n, out)
			}
		}
	}
}

// TestStepMayKeepItsState: a log that grows in place gives the same answers as
// one that is copied for each step.
func TestStepMayKeepItsState(t *testing.T) {
	r := seeded(t)
	w := newWalk(r, MustNew(Spec{Algorithm: SlidingLog, Max: 50, Window: time.Second}))
	var copied State
	for range 5000 {
		w.move()
		cost := w.cost()
		var want Outcome
		copied, want = try(copied, w.l, cost, w.now)
		if len(w.s.Log) == 0 && w.s.At == 0 {
			copied, want = try(State{}, w.l, cost, w.now)
		}
		if got := w.record(cost); got != want || !equal(w.s, copied) {
			t.Fatalf("%+v, copied %+v", got, want)
		}
	}
}
