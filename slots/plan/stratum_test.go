package plan

import (
	"math"
	"math/big"
	"testing"
)

func TestStratumSpreadsOverTheRest(t *testing.T) {
	const top = 1<<31 - 1
	for _, c := range []struct {
		name                                string
		random                              uint32
		count, capacity, max, elapsed, size int64
		want                                int64
	}{
		{"first, earliest", 0, 0, 100, 100, 0, 4000, 0},
		{"first, latest", top, 0, 100, 100, 0, 4000, 39},
		{"second, earliest", 0, 1, 100, 100, 0, 4000, 40},
		{"last, latest", top, 99, 100, 100, 0, 4000, 3999},
		{"half over, first", 0, 0, 50, 100, 2000, 4000, 2000},
		{"half over, first, latest", top, 0, 50, 100, 2000, 4000, 2039},
		{"half over, last", top, 49, 50, 100, 2000, 4000, 3999},
		{"1 ms over", 0, 0, 99, 100, 1, 4000, 40},
		{"one place", top, 0, 1, 1, 0, 4000, 3999},
		{"three in ten, 2nd earliest", 0, 1, 3, 3, 0, 10, 3},
		{"three in ten, 2nd latest", top, 1, 3, 3, 0, 10, 5},
		{"three in ten, 3rd latest", top, 2, 3, 3, 0, 10, 9},
		{"more places than ms", top, 3, 8000, 8000, 0, 4000, 1},
		{"more places than ms, no stratum of its own", top, 4000, 6000, 6000, 0, 4000, 2666},
		{"more places than ms, last", top, 7999, 8000, 8000, 0, 4000, 3999},
		{"the most", top, MaxPerWindow - 1, MaxPerWindow, MaxPerWindow, 0, MaxSizeMs, MaxSizeMs - 1},
		{"count beyond capacity", 0, 150, 100, 100, 0, 4000, 3960},
		{"count far beyond", 0, MaxPerWindow, 2, 100, 3900, 4000, 3960},
		{"capacity above max", 0, 0, 200, 100, 0, 4000, 0},
		{"no places", 0, 0, 0, 0, 100, 4000, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Stratum(c.random, c.count, c.capacity, c.max, c.elapsed, c.size); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// stratumExact is the documented formula in unbounded integers.
func stratumExact(random uint32, count, capacity, most, elapsed, size int64) int64 {
	edge := func(k *big.Int) int64 {
		n := new(big.Int).Mul(k, bigInt(size))
		n.Div(n, bigInt(most))
		if !n.IsInt64() {
			panic("beyond int64")
		}
		return n.Int64()
	}
	k := new(big.Int).Sub(bigInt(most), bigInt(capacity))
	k.Add(k, bigInt(count))
	if last := bigInt(most - 1); k.Cmp(last) > 0 {
		k = last
	}
	lo := max(elapsed, edge(k))
	hi := min(max(lo+1, edge(new(big.Int).Add(k, bigInt(1)))), size)
	return drawExact(random, lo, hi)
}

func TestStratumExact(t *testing.T) {
	r := seeded(t)
	for range 200_000 {
		size, most := randomSize(r), randomMax(r)
		elapsed, capacity := int64(0), most
		if r.IntN(2) == 0 {
			elapsed = r.Int64N(size)
			capacity = FirstCapacity(most, elapsed, size)
		}
		count := r.Int64N(capacity + 1) // one beyond as well
		random := randomBits(r)
		got := Stratum(random, count, capacity, most, elapsed, size)
		if want := stratumExact(random, count, capacity, most, elapsed, size); got != want || got < elapsed || got >= size {
			t.Fatalf("Stratum(%d, %d, %d, %d, %d, %d) = %d, want %d", random, count, capacity, most, elapsed, size, got, want)
		}
	}
}

// TestStratumNeverCutByElapsed: with the capacity of its instant an event's
// stratum begins at elapsed or later, so that elapsed shortens none.
func TestStratumNeverCutByElapsed(t *testing.T) {
	r := seeded(t)
	for range 200_000 {
		size, most := randomSize(r), randomMax(r)
		elapsed := r.Int64N(size)
		capacity := FirstCapacity(most, elapsed, size)
		if capacity > 0 && (most-capacity)*size/most < elapsed {
			t.Fatalf("size %d max %d elapsed %d: the first stratum begins at %d", size, most, elapsed, (most-capacity)*size/most)
		}
	}
}

// TestStratifiedBurst: of events with one requested instant, an interval of
// any length L holds little more than the average of L*max/size: two,
// since it can cut a stratum at either end, and as many as one millisecond
// has, the precision of an offset.
func TestStratifiedBurst(t *testing.T) {
	r := seeded(t)
	for _, c := range []struct{ most, size, elapsed int64 }{
		{100, 4000, 0}, {100, 4000, 1234}, {7, 4000, 0}, {333, 1000, 500}, {1000, 100, 0}, {13, 86_400_000, 5},
	} {
		capacity := FirstCapacity(c.most, c.elapsed, c.size)
		for range 50 {
			var slots []int64
			for count := range capacity {
				slots = append(slots, Stratum(randomBits(r), count, capacity, c.most, c.elapsed, c.size))
			}
			for i := range slots {
				for j := i; j < len(slots); j++ {
					if j > i && slots[j] < slots[j-1] {
						t.Fatalf("%+v: event %d is before event %d", c, j, j-1)
					}
					length, n := slots[j]-slots[i]+1, int64(j-i+1)
					if n > length*c.most/c.size+2+(c.most+c.size-1)/c.size {
						t.Fatalf("%+v: %d events within %d ms", c, n, length)
					}
				}
			}
		}
	}
}

// chiSquare is how far counts are from uniform, in standard deviations of the
// chi-square distribution (mean n-1, variance 2(n-1), near normal for many).
func chiSquare(counts []int) float64 {
	total := 0
	for _, n := range counts {
		total += n
	}
	want := float64(total) / float64(len(counts))
	var sum float64
	for _, n := range counts {
		sum += (float64(n) - want) * (float64(n) - want) / want
	}
	free := float64(len(counts) - 1)
	return (sum - free) / math.Sqrt(2*free)
}

// uniform is within what 1 in a million samples exceeds. Too even is wrong as
// well: it would be a grid.
func uniform(t *testing.T, counts []int) {
	t.Helper()
	if d := chiSquare(counts); math.Abs(d) > 5 {
		t.Errorf("%.1f standard deviations from what is expected", d)
	}
}

// TestJitterUniform: every millisecond of the range is as
// likely as another.
func TestJitterUniform(t *testing.T) {
	for name, c := range map[string]struct{ lo, hi int64 }{
		"later window": {0, 4000}, "first window": {1234, 4000}, "not a power of two": {0, 7}, "almost over": {3990, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			r := seeded(t)
			counts := make([]int, c.hi-c.lo)
			for range 200 * len(counts) {
				counts[Draw(r.Uint32()>>1, c.lo, c.hi)-c.lo]++
			}
			uniform(t, counts)
		})
	}
}

// TestStratifiedUniform: over many windows every millisecond is as likely as
// another, as it is with plain jitter, and so it is within a stratum.
func TestStratifiedUniform(t *testing.T) {
	r := seeded(t)
	const size, most, windows = 4000, 100, 20_000
	inWindow, inStratum := make([]int, size), make([]int, size/most)
	for range windows {
		for count := range int64(most) {
			offset := Stratum(r.Uint32()>>1, count, most, most, 0, size)
			if offset/(size/most) != count {
				t.Fatalf("event %d at %d", count, offset)
			}
			inWindow[offset]++
			inStratum[offset%(size/most)]++
		}
	}
	uniform(t, inStratum)
	// Each stratum has the same number of events, so a degree of freedom is
	// missing per stratum: 40 of 4000, far less than five deviations.
	uniform(t, inWindow)
}

// TestChiSquareBites: flaws of a draw are found.
func TestChiSquareBites(t *testing.T) {
	r := seeded(t)
	const n = 200
	draw := func(hi int64) int64 { return Draw(r.Uint32()>>1, 0, hi) }
	for name, flawed := range map[string]func(i int) int64{
		"30 bits for 31":     func(int) int64 { return Draw(r.Uint32()>>2, 0, n) },
		"sum of two":         func(int) int64 { return (draw(n) + draw(n)) / 2 },
		"grid":               func(i int) int64 { return int64(i) % n },
		"last value never":   func(int) int64 { return draw(n - 1) },
		"one in 8 too early": func(i int) int64 { return draw(n) % (n >> (i % 8 / 7)) },
	} {
		counts := make([]int, n)
		for i := range 200 * n {
			counts[flawed(i)]++
		}
		if d := chiSquare(counts); math.Abs(d) <= 5 {
			t.Errorf("%s: %.1f deviations, not found", name, d)
		}
	}
}
