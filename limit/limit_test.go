package limit

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestNewRefusesWhatCannotBeExact(t *testing.T) {
	const sec = time.Second
	for _, c := range []struct {
		name string
		spec Spec
		want string // part of the error, or empty
	}{
		{"fixed window", Spec{Algorithm: FixedWindow, Max: 10, Window: sec}, ""},
		{"limit 0", Spec{Algorithm: FixedWindow, Max: 0, Window: sec}, ""},
		{"limit 0 of a log", Spec{Algorithm: SlidingLog, Max: 0, Window: sec}, ""},
		{"limit 0 of a sliding window", Spec{Algorithm: SlidingWindow, Max: 0, Window: sec}, ""},
		{"largest limit", Spec{Algorithm: FixedWindow, Max: MaxUnits, Window: MaxWindow}, ""},
		{"limit too large", Spec{Algorithm: FixedWindow, Max: MaxUnits + 1, Window: sec},
			"limit 1099511627777 is outside 0 to 1099511627776"},
		{"limit negative", Spec{Algorithm: SlidingLog, Max: -1, Window: sec}, "limit -1 is outside 0"},
		{"limit least int64", Spec{Algorithm: SlidingLog, Max: math.MinInt64, Window: sec}, "is outside 0"},
		{"largest sliding window", Spec{Algorithm: SlidingWindow, Max: MaxSlidingWindowUnits, Window: MaxWindow}, ""},
		{"sliding window too large", Spec{Algorithm: SlidingWindow, Max: MaxSlidingWindowUnits + 1, Window: sec},
			"outside 0 to 4294967296"},

		{"no algorithm", Spec{Algorithm: 0, Max: 10, Window: sec}, "unknown algorithm 0"},
		{"algorithm beyond the last", Spec{Algorithm: numAlgorithms, Max: 10, Window: sec},
			fmt.Sprint("unknown algorithm ", numAlgorithms)},
		{"algorithm 255", Spec{Algorithm: 255, Max: 10, Window: sec}, "unknown algorithm 255"},

		{"no window", Spec{Algorithm: FixedWindow, Max: 10, Window: 0}, "window 0s is outside 1ms"},
		{"window negative", Spec{Algorithm: FixedWindow, Max: 10, Window: -sec}, "window -1s is outside"},
		{"window too short", Spec{Algorithm: FixedWindow, Max: 10, Window: MinWindow - us}, "window 999µs is outside"},
		{"shortest window", Spec{Algorithm: FixedWindow, Max: 10, Window: MinWindow}, ""},
		{"longest window", Spec{Algorithm: FixedWindow, Max: 10, Window: MaxWindow}, ""},
		{"window too long", Spec{Algorithm: FixedWindow, Max: 10, Window: MaxWindow + us}, "to 10 years"},
		{"window of nanoseconds", Spec{Algorithm: FixedWindow, Max: 10, Window: sec + 1}, "finer than a microsecond"},

		{"burst of a window", Spec{Algorithm: FixedWindow, Max: 10, Window: sec, Burst: 5}, "fixed_window has no burst"},
		{"burst of a log", Spec{Algorithm: SlidingLog, Max: 10, Window: sec, Burst: -5}, "sliding_log has no burst"},
		{"burst of a sliding window", Spec{Algorithm: SlidingWindow, Max: 10, Window: sec, Burst: 5},
			"sliding_window has no burst"},

		{"bucket", Spec{Algorithm: TokenBucket, Max: 10, Window: sec, Burst: 20}, ""},
		{"in flight", Spec{Algorithm: Concurrency, Max: MaxInFlight, Window: sec, Hold: sec}, ""},
		{"in flight, none", Spec{Algorithm: Concurrency, Max: 0, Window: sec}, ""},
		{"too many in flight", Spec{Algorithm: Concurrency, Max: MaxInFlight + 1, Window: sec},
			"limit 1048577 is outside 0 to 1048576"},
		{"burst in flight", Spec{Algorithm: Concurrency, Max: 10, Window: sec, Burst: 5}, "concurrency has no burst"},
		{"hold of a bucket", Spec{Algorithm: TokenBucket, Max: 10, Window: sec, Burst: 20, Hold: sec},
			"token_bucket has no hold"},
		{"hold beyond the lease", Spec{Algorithm: Concurrency, Max: 10, Window: sec, Hold: sec + us},
			"hold 1.000001s is not whole microseconds from 0 to the window"},
		{"hold negative", Spec{Algorithm: Concurrency, Max: 10, Window: sec, Hold: -us}, "hold -1µs is not"},
		{"hold of nanoseconds", Spec{Algorithm: Concurrency, Max: 10, Window: sec, Hold: 1}, "hold 1ns is not"},
		{"bucket without a burst", Spec{Algorithm: TokenBucket, Max: 10, Window: sec}, ""},
		{"bucket of rate 0", Spec{Algorithm: TokenBucket, Max: 0, Window: sec, Burst: 20},
			"at least 1 per window; to refuse everything use fixed_window"},
		{"burst negative", Spec{Algorithm: TokenBucket, Max: 10, Window: sec, Burst: -1}, "burst -1 is outside 1 to"},
		{"saturate", Spec{Algorithm: FixedWindow, Max: 10, Window: sec, Overflow: Saturate}, ""},
		{"debt", Spec{Algorithm: SlidingLog, Max: 10, Window: sec, Overflow: Debt}, ""},
		{"debt of many limits", Spec{Algorithm: TokenBucket, Max: 10, Window: sec, Overflow: Debt, MaxDebt: 1_000_000}, ""},
		{"debt of a limit that is 0", Spec{Algorithm: FixedWindow, Window: sec, Overflow: Debt}, ""},
		{"debt that is never paid", Spec{Algorithm: FixedWindow, Window: sec, Overflow: Debt, MaxDebt: 1},
			"max_debt 1 takes longer than 10 years to pay back; at most 0"},
		{"debt of ten years", Spec{Algorithm: SlidingWindow, Max: 3, Window: MaxWindow, Overflow: Debt, MaxDebt: 3}, ""},
		{"debt of more", Spec{Algorithm: SlidingWindow, Max: 3, Window: MaxWindow, Overflow: Debt, MaxDebt: 4}, "at most 3"},
		{"debt of a bucket of more", Spec{Algorithm: TokenBucket, Max: 1, Window: year, Overflow: Debt, MaxDebt: 11},
			"at most 10"},
		{"debt of a bucket that takes years to fill", Spec{Algorithm: TokenBucket, Max: 1, Window: MaxWindow, Burst: 14,
			Overflow: Debt}, ""},
		{"debt negative", Spec{Algorithm: TokenBucket, Max: 10, Window: sec, Overflow: Debt, MaxDebt: -1},
			"max_debt -1 is outside 1 to"},
		{"debt without overflow debt", Spec{Algorithm: FixedWindow, Max: 10, Window: sec, Overflow: Saturate, MaxDebt: 1},
			"max_debt goes with overflow debt, not saturate"},
		{"unknown overflow", Spec{Algorithm: FixedWindow, Max: 10, Window: sec, Overflow: 3}, "unknown overflow 3"},
		{"overflow in flight", Spec{Algorithm: Concurrency, Max: 10, Window: sec, Overflow: Saturate},
			"concurrency has no overflow: a request in flight is admitted or refused"},
		{"largest burst", Spec{Algorithm: TokenBucket, Max: MaxRate, Window: sec, Burst: MaxUnits}, ""},
		{"burst too large", Spec{Algorithm: TokenBucket, Max: MaxRate, Window: sec, Burst: MaxUnits + 1},
			"burst 1099511627777 is outside"},
		{"1 per year", Spec{Algorithm: TokenBucket, Max: 1, Window: year}, ""},
		{"1 per ten years", Spec{Algorithm: TokenBucket, Max: 1, Window: MaxWindow, Burst: 14}, ""},
		{"1 per ten years, burst of 15", Spec{Algorithm: TokenBucket, Max: 1, Window: MaxWindow, Burst: 15},
			"takes too long to refill at 1 per"},
		{"10^7 per second", Spec{Algorithm: TokenBucket, Max: MaxRate, Window: sec}, ""},
		{"one more", Spec{Algorithm: TokenBucket, Max: MaxRate + 1, Window: sec},
			"rate 10000001 per 1s is faster than 10000000 per second"},
		{"one more per window of a day", Spec{Algorithm: TokenBucket, Max: 864_000_000_001, Window: day, Burst: 1},
			"is faster than"},
		{"one more per longest window at that rate", Spec{Algorithm: TokenBucket, Max: 1_099_511_627_771,
			Window: 109_951_162_777 * us, Burst: 1}, "is faster than"},
		{"just not more", Spec{Algorithm: TokenBucket, Max: 1_099_511_627_770, Window: 109_951_162_777 * us, Burst: 1}, ""},
		{"10^4 per millisecond", Spec{Algorithm: TokenBucket, Max: 10_000, Window: MinWindow}, ""},
		{"refill that needs rounding and leaves no digits", Spec{Algorithm: TokenBucket, Max: 999983, Window: MaxWindow,
			Burst: MaxUnits}, "use a smaller burst"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := New(c.spec)
			switch {
			case c.want == "" && err != nil:
				t.Fatal(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("error %v, want %q in it", err, c.want)
			case err == nil:
				checkAccessors(t, l, c.spec)
			}
		})
	}
}

func checkAccessors(t *testing.T, l *Limit, s Spec) {
	t.Helper()
	capacity := s.Max
	if s.Algorithm == TokenBucket {
		if s.Burst == 0 {
			s.Burst = s.Max
		}
		capacity = s.Burst
	}
	if s.Overflow == Debt && s.MaxDebt == 0 {
		s.MaxDebt = min(capacity, l.mostDebt())
	}
	if l.Spec() != s || l.Algorithm() != s.Algorithm || l.Max() != s.Max || l.Window() != s.Window ||
		l.Capacity() != capacity {
		t.Errorf("%+v does not render %+v", l, s)
	}
	num, den := l.Interval()
	timed := s.Algorithm == TokenBucket || s.Algorithm == SlidingLog && s.Overflow == Debt
	if timed != (num > 0) || timed != (den > 0) || timed && capacity+s.MaxDebt > maxExact/num {
		t.Errorf("interval %d/%d", num, den)
	}
	step, steps := l.Grid()
	if s.Algorithm != SlidingWindow {
		if step != 0 || steps != 0 {
			t.Errorf("grid of %d steps of %d µs", steps, step)
		}
	} else if w := int64(micro(s.Window)); step*steps < w || step*(steps-1) >= w || steps > gridSteps {
		t.Errorf("grid of %d steps of %d µs for a window of %d", steps, step, w)
	}
}

func TestMustNewPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	MustNew(Spec{})
}

func TestIntervalsRoundUp(t *testing.T) {
	for _, c := range []struct {
		most, burst int64
		window      time.Duration
		num, den    int64
	}{
		{1, 0, time.Second, 1_000_000, 1},
		{10, 0, time.Second, 100_000, 1},
		{7, 0, 3 * time.Second, 3_000_000, 7},
		{MaxRate, 0, time.Second, 1, 10},
		{1, 0, MaxWindow, 316_224_000_000_000, 1},
		// 316229375.8... µs, rounded up; with two decimals the burst is beyond 2^52.
		{999983, 1_000_003, MaxWindow, 3162293759, 10},
	} {
		l := MustNew(Spec{Algorithm: TokenBucket, Max: c.most, Window: c.window, Burst: c.burst})
		if num, den := l.Interval(); num != c.num || den != c.den {
			t.Errorf("%v: one unit in %d/%d µs, want %d/%d", l, num, den, c.num, c.den)
		}
	}
}

func TestAlgorithmNames(t *testing.T) {
	want := []string{"fixed_window", "sliding_log", "sliding_window", "token_bucket"}
	all := Algorithms()
	for i, name := range want { // rules have these names already
		if all[i].String() != name {
			t.Errorf("%v, want %s", all[i], name)
		}
	}
	for _, want := range all {
		if a, ok := ParseAlgorithm(want.String()); !ok || a != want {
			t.Errorf("%v is parsed as %v, %v", want, a, ok)
		}
	}
	for _, name := range []string{"", "Fixed_Window", "fixed_window ", "algorithm(0)", "concurrency"} {
		if a, ok := ParseAlgorithm(name); ok || a != 0 {
			t.Errorf("%q is parsed as %v", name, a)
		}
	}
	for a, name := range map[Algorithm]string{0: "algorithm(0)", Concurrency: "concurrency", 255: "algorithm(255)"} {
		if a.String() != name {
			t.Errorf("%q, want %q", a.String(), name)
		}
	}
}

func TestLimitString(t *testing.T) {
	for want, s := range map[string]Spec{
		"fixed_window 10/1m":                   {Algorithm: FixedWindow, Max: 10, Window: time.Minute},
		"token_bucket 10/1m burst 3":           {Algorithm: TokenBucket, Max: 10, Window: time.Minute, Burst: 3},
		"fixed_window 10/1m overflow saturate": {Algorithm: FixedWindow, Max: 10, Window: time.Minute, Overflow: Saturate},
		"sliding_log 10/1m overflow debt 7": {Algorithm: SlidingLog, Max: 10, Window: time.Minute,
			Overflow: Debt, MaxDebt: 7},
		"concurrency 10": {Algorithm: Concurrency, Max: 10, Window: time.Minute, Hold: time.Second},
	} {
		if got := MustNew(s).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestInstantDropsNanoseconds(t *testing.T) {
	base := time.Date(2026, 2, 3, 4, 5, 6, 7_000, time.UTC)
	i := InstantOf(base)
	for _, c := range []struct {
		name      string
		got, want Instant
	}{
		{"nanoseconds are dropped", InstantOf(base.Add(999)), i},
		{"downwards before 1970, too", InstantOf(time.Unix(0, -1)), -1},
		{"other zones", InstantOf(base.In(time.FixedZone("", 3600))), i},
		{"Add", i.Add(time.Second), i + 1_000_000},
		{"Add drops nanoseconds", i.Add(1999), i + 1},
		{"Add backwards drops nanoseconds", i.Add(-1999), i - 1},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
	if got := i.Time(); !got.Equal(base) || got.Location() != time.UTC {
		t.Errorf("%v, want %v", got, base)
	}
}
