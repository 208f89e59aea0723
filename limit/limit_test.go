package limit

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestNew(t *testing.T) {
	const sec = time.Second
	for _, c := range []struct {
		name string
		spec Spec
		want string // part of the error, or empty
	}{
		{"fixed window", Spec{FixedWindow, 10, sec, 0, 0}, ""},
		{"limit 0", Spec{FixedWindow, 0, sec, 0, 0}, ""},
		{"limit 0 of a log", Spec{SlidingLog, 0, sec, 0, 0}, ""},
		{"limit 0 of a sliding window", Spec{SlidingWindow, 0, sec, 0, 0}, ""},
		{"largest limit", Spec{FixedWindow, MaxUnits, MaxWindow, 0, 0}, ""},
		{"limit too large", Spec{FixedWindow, MaxUnits + 1, sec, 0, 0}, "limit 1099511627777 is outside 0 to 1099511627776"},
		{"limit negative", Spec{SlidingLog, -1, sec, 0, 0}, "limit -1 is outside 0"},
		{"limit least int64", Spec{SlidingLog, math.MinInt64, sec, 0, 0}, "is outside 0"},
		{"largest sliding window", Spec{SlidingWindow, MaxSlidingWindowUnits, MaxWindow, 0, 0}, ""},
		{"sliding window too large", Spec{SlidingWindow, MaxSlidingWindowUnits + 1, sec, 0, 0}, "outside 0 to 4294967296"},

		{"no algorithm", Spec{0, 10, sec, 0, 0}, "unknown algorithm 0"},
		{"algorithm beyond the last", Spec{numAlgorithms, 10, sec, 0, 0}, fmt.Sprint("unknown algorithm ", numAlgorithms)},
		{"algorithm 255", Spec{255, 10, sec, 0, 0}, "unknown algorithm 255"},

		{"no window", Spec{FixedWindow, 10, 0, 0, 0}, "window 0s is outside 1ms"},
		{"window negative", Spec{FixedWindow, 10, -sec, 0, 0}, "window -1s is outside"},
		{"window too short", Spec{FixedWindow, 10, MinWindow - us, 0, 0}, "window 999µs is outside"},
		{"shortest window", Spec{FixedWindow, 10, MinWindow, 0, 0}, ""},
		{"longest window", Spec{FixedWindow, 10, MaxWindow, 0, 0}, ""},
		{"window too long", Spec{FixedWindow, 10, MaxWindow + us, 0, 0}, "to 10 years"},
		{"window of nanoseconds", Spec{FixedWindow, 10, sec + 1, 0, 0}, "finer than a microsecond"},

		{"burst of a window", Spec{FixedWindow, 10, sec, 5, 0}, "fixed_window has no burst"},
		{"burst of a log", Spec{SlidingLog, 10, sec, -5, 0}, "sliding_log has no burst"},
		{"burst of a sliding window", Spec{SlidingWindow, 10, sec, 5, 0}, "sliding_window has no burst"},

		{"bucket", Spec{TokenBucket, 10, sec, 20, 0}, ""},
		{"in flight", Spec{Concurrency, MaxInFlight, sec, 0, sec}, ""},
		{"in flight, none", Spec{Concurrency, 0, sec, 0, 0}, ""},
		{"too many in flight", Spec{Concurrency, MaxInFlight + 1, sec, 0, 0}, "limit 1048577 is outside 0 to 1048576"},
		{"burst in flight", Spec{Concurrency, 10, sec, 5, 0}, "concurrency has no burst"},
		{"hold of a bucket", Spec{TokenBucket, 10, sec, 20, sec}, "token_bucket has no hold"},
		{"hold beyond the lease", Spec{Concurrency, 10, sec, 0, sec + us}, "hold 1.000001s is not whole microseconds from 0 to the window"},
		{"hold negative", Spec{Concurrency, 10, sec, 0, -us}, "hold -1µs is not"},
		{"hold of nanoseconds", Spec{Concurrency, 10, sec, 0, 1}, "hold 1ns is not"},
		{"bucket without a burst", Spec{TokenBucket, 10, sec, 0, 0}, ""},
		{"bucket of rate 0", Spec{TokenBucket, 0, sec, 20, 0}, "at least 1 per window; to refuse everything use fixed_window"},
		{"burst negative", Spec{TokenBucket, 10, sec, -1, 0}, "burst -1 is outside 1 to"},
		{"largest burst", Spec{TokenBucket, MaxRate, sec, MaxUnits, 0}, ""},
		{"burst too large", Spec{TokenBucket, MaxRate, sec, MaxUnits + 1, 0}, "burst 1099511627777 is outside"},
		{"1 per year", Spec{TokenBucket, 1, year, 0, 0}, ""},
		{"1 per ten years", Spec{TokenBucket, 1, MaxWindow, 14, 0}, ""},
		{"1 per ten years, burst of 15", Spec{TokenBucket, 1, MaxWindow, 15, 0}, "takes too long to refill at 1 per"},
		{"10^7 per second", Spec{TokenBucket, MaxRate, sec, 0, 0}, ""},
		{"one more", Spec{TokenBucket, MaxRate + 1, sec, 0, 0}, "rate 10000001 per 1s is faster than 10000000 per second"},
		{"one more per window of a day", Spec{TokenBucket, 864_000_000_001, day, 1, 0}, "is faster than"},
		{"one more per longest window at that rate", Spec{TokenBucket, 1_099_511_627_771, 109_951_162_777 * us, 1, 0}, "is faster than"},
		{"just not more", Spec{TokenBucket, 1_099_511_627_770, 109_951_162_777 * us, 1, 0}, ""},
		{"10^4 per millisecond", Spec{TokenBucket, 10_000, MinWindow, 0, 0}, ""},
		{"refill that needs rounding and leaves no digits", Spec{TokenBucket, 999983, MaxWindow, MaxUnits, 0}, "use a smaller burst"},
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
	if l.Spec() != s || l.Algorithm() != s.Algorithm || l.Max() != s.Max || l.Window() != s.Window || l.Capacity() != capacity {
		t.Errorf("%+v does not render %+v", l, s)
	}
	num, den := l.Interval()
	if bucket := s.Algorithm == TokenBucket; bucket != (num > 0) || bucket != (den > 0) || bucket && s.Burst > maxExact/num {
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

func TestIntervals(t *testing.T) {
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
		l := MustNew(Spec{TokenBucket, c.most, c.window, c.burst, 0})
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
		"fixed_window 10/1m0s":         {FixedWindow, 10, time.Minute, 0, 0},
		"token_bucket 10/1m0s burst 3": {TokenBucket, 10, time.Minute, 3, 0},
		"concurrency 10":               {Concurrency, 10, time.Minute, 0, time.Second},
	} {
		if got := MustNew(s).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestInstant(t *testing.T) {
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
