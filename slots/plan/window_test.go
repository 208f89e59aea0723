package plan

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func bigInt(n int64) *big.Int { return big.NewInt(n) }

// randomInstant is any instant in microseconds, often near an edge of a window
// or of the range.
func randomInstant(r *rand.Rand, sizeMs int64) int64 {
	near := r.Int64N(4001) - 2000
	switch r.IntN(5) {
	case 0:
		return (r.Int64N(2_000_000_000)-1_000_000_000)/sizeMs*sizeMs*1000 + near
	case 1:
		return near
	case 2:
		return math.MaxInt64 - r.Int64N(100_000_000)
	case 3:
		return math.MinInt64 + r.Int64N(100_000_000)
	}
	return int64(r.Uint64())
}

func randomMax(r *rand.Rand) int64 {
	switch r.IntN(4) {
	case 0:
		return 1 + r.Int64N(200)
	case 1:
		return MaxPerWindow - r.Int64N(3)
	case 2:
		return 1 + r.Int64N(1_000_000)
	}
	return 1 + r.Int64N(MaxPerWindow)
}

func randomBits(r *rand.Rand) uint32 {
	if r.IntN(8) == 0 {
		return []uint32{0, 1<<31 - 1}[r.IntN(2)]
	}
	return r.Uint32() >> 1
}

// TestWindowStartsOnItsMultiple: starts, elapsed parts and capacities by hand.
func TestWindowStartsOnItsMultiple(t *testing.T) {
	const noon = 1_795_262_400_000 // a multiple of 4000
	for _, c := range []struct {
		name                              string
		us, size, max                     int64
		wantStart, wantElapsed, wantFirst int64
	}{
		{"aligned", noon * 1000, 4000, 100, noon, 0, 100},
		{"one µs in", noon*1000 + 1, 4000, 100, noon, 1, 99},
		{"one ms in", noon*1000 + 1000, 4000, 100, noon, 1, 99},
		{"1 ms and 1 µs in", noon*1000 + 1001, 4000, 100, noon, 2, 99},
		{"half", noon*1000 + 2_000_000, 4000, 100, noon, 2000, 50},
		{"3.9 s", noon*1000 + 3_900_000, 4000, 100, noon, 3900, 2},
		{"+3999 ms", noon*1000 + 3_999_000, 4000, 100, noon, 3999, 0},
		{"+3999 ms of many", noon*1000 + 3_999_000, 4000, 4000, noon, 3999, 1},
		{"+3999.5 ms", noon*1000 + 3_999_500, 4000, 4000, noon, 4000, 0},
		{"+3999.5 ms of most", noon*1000 + 3_999_500, 4000, MaxPerWindow, noon, 4000, 0},
		{"max 1", noon*1000 + 1, 4000, 1, noon, 1, 0},
		{"max 0", noon * 1000, 4000, 0, noon, 0, 0},
		{"below 0", noon * 1000, 4000, -5, noon, 0, 0},
		{"epoch", 0, 4000, 100, 0, 0, 100},
		{"1 µs before the epoch", -1, 4000, 100, -4000, 4000, 0},
		{"1 ms before the epoch", -1000, 4000, 8000, -4000, 3999, 2},
		{"4 s before the epoch", -4_000_000, 4000, 100, -4000, 0, 100},
		{"4 s and 1 µs before", -4_000_001, 4000, 100, -8000, 4000, 0},
		{"half a second", 1_700_000, 500, 10, 1500, 200, 6},
		{"one and a half", 1_700_000, 1500, 15, 1500, 200, 13},
		{"7 s, next day", 86_400_000_000, 7000, 7, 86_394_000, 6000, 1}, // 7 s do not divide a day
		{"a day", 86_399_999_999, 86_400_000, MaxPerWindow, 0, 86_400_000, 0},
		{"a day, last ms", 86_399_999_000, 86_400_000, MaxPerWindow, 0, 86_399_999, 115},
		{"a day, first µs", 1, 86_400_000, MaxPerWindow, 0, 1, 9_999_999_883},
	} {
		t.Run(c.name, func(t *testing.T) {
			start, elapsed := WindowStart(c.us, c.size), Elapsed(c.us, c.size)
			first := FirstCapacity(c.max, elapsed, c.size)
			if start != c.wantStart || elapsed != c.wantElapsed || first != c.wantFirst {
				t.Errorf("start %d elapsed %d capacity %d, want %d %d %d", start, elapsed, first, c.wantStart,
					c.wantElapsed, c.wantFirst)
			}
		})
	}
}

// TestWindowLaws: start <= instant < start+size, start on the grid, and
// start+elapsed the first millisecond not before the instant.
func TestWindowLaws(t *testing.T) {
	r := seeded(t)
	thousand := bigInt(1000)
	for range 200_000 {
		size := randomSize(r)
		us := randomInstant(r, size)
		start, elapsed := WindowStart(us, size), Elapsed(us, size)
		if start%size != 0 || elapsed < 0 || elapsed > size {
			t.Fatalf("us %d size %d: start %d elapsed %d", us, size, start, elapsed)
		}
		instant, begin := bigInt(us), new(big.Int).Mul(bigInt(start), thousand)
		end := new(big.Int).Add(begin, new(big.Int).Mul(bigInt(size), thousand))
		if begin.Cmp(instant) > 0 || instant.Cmp(end) >= 0 {
			t.Fatalf("us %d size %d: window starts at %d", us, size, start)
		}
		late := new(big.Int).Sub(new(big.Int).Mul(bigInt(start+elapsed), thousand), instant)
		if late.Sign() < 0 || late.Cmp(thousand) >= 0 {
			t.Fatalf("us %d size %d: elapsed %d is %d µs after it", us, size, elapsed, late)
		}
	}
}

// TestFirstCapacityExact compares with unbounded integers.
func TestFirstCapacityExact(t *testing.T) {
	r := seeded(t)
	for range 200_000 {
		size, most := randomSize(r), randomMax(r)
		elapsed := r.Int64N(size + 1)
		want := new(big.Int).Mul(bigInt(most), bigInt(size-elapsed))
		want.Div(want, bigInt(size))
		got := FirstCapacity(most, elapsed, size)
		if got != want.Int64() {
			t.Fatalf("max %d elapsed %d size %d: %d, want %d", most, elapsed, size, got, want)
		}
		if elapsed < size && FirstCapacity(most, elapsed+1, size) > got {
			t.Fatalf("max %d size %d: capacity grows after %d", most, size, elapsed)
		}
	}
	for _, elapsed := range []int64{4000, 4001, math.MaxInt64} {
		if got := FirstCapacity(MaxPerWindow, elapsed, 4000); got != 0 {
			t.Errorf("elapsed %d: %d", elapsed, got)
		}
	}
	if got := FirstCapacity(8000, -1, 4000); got != 8000 {
		t.Errorf("elapsed -1: %d", got)
	}
}

func TestDrawStaysWithinItsBounds(t *testing.T) {
	const top = 1<<31 - 1
	for _, c := range []struct {
		random       uint32
		lo, hi, want int64
	}{
		{0, 0, 4000, 0}, {top, 0, 4000, 3999}, {1 << 30, 0, 4000, 2000}, {1<<30 - 1, 0, 4000, 1999},
		{0, 3999, 4000, 3999}, {top, 3999, 4000, 3999}, {top, -3, -1, -2}, {0, -3, -1, -3},
		{top, 0, MaxSizeMs, MaxSizeMs - 1}, {1, 0, MaxSizeMs, 0}, {25, 0, MaxSizeMs, 1},
		{top, math.MinInt64, math.MaxInt64, math.MaxInt64 - 1<<33}, {0, math.MinInt64, math.MaxInt64, math.MinInt64},
		{math.MaxUint32, 0, 4000, 3999}, {1 << 31, 0, 4000, 0}, // the top bit is ignored
		{top, 4000, 4000, 4000}, {top, 4000, 3000, 4000}, // empty
	} {
		if got := Draw(c.random, c.lo, c.hi); got != c.want {
			t.Errorf("Draw(%d, %d, %d) = %d, want %d", c.random, c.lo, c.hi, got, c.want)
		}
	}
}

func drawExact(random uint32, lo, hi int64) int64 {
	n := new(big.Int).Sub(bigInt(hi), bigInt(lo))
	n.Mul(n, bigInt(int64(random))).Rsh(n, 31)
	return n.Add(n, bigInt(lo)).Int64()
}

func TestDrawExact(t *testing.T) {
	r := seeded(t)
	for range 200_000 {
		lo, hi := int64(r.Uint64()), int64(r.Uint64())
		if r.IntN(2) == 0 {
			hi = randomSize(r)
			lo = r.Int64N(hi)
		}
		lo, hi = min(lo, hi), max(lo, hi)
		if lo == hi {
			continue
		}
		random := randomBits(r)
		got := Draw(random, lo, hi)
		if got != drawExact(random, lo, hi) || got < lo || got >= hi {
			t.Fatalf("Draw(%d, %d, %d) = %d, want %d", random, lo, hi, got, drawExact(random, lo, hi))
		}
	}
}

// TestJitterNeverEarly: a slot is in its window and never before the requested
// instant.
func TestJitterNeverEarly(t *testing.T) {
	r := seeded(t)
	drawn := 0
	for range 200_000 {
		size, most := randomSize(r), randomMax(r)
		us := randomInstant(r, size)
		start, elapsed := WindowStart(us, size), Elapsed(us, size)
		capacity := FirstCapacity(most, elapsed, size)
		if capacity == 0 {
			continue
		}
		drawn++
		random := randomBits(r)
		for _, offset := range []int64{
			Draw(random, elapsed, size),
			Stratum(random, r.Int64N(capacity), capacity, most, elapsed, size),
		} {
			scheduled := new(big.Int).Mul(bigInt(start+offset), bigInt(1000))
			if scheduled.Cmp(bigInt(us)) < 0 || offset < elapsed || offset >= size {
				t.Fatalf("us %d size %d max %d: offset %d, elapsed %d", us, size, most, offset, elapsed)
			}
		}
	}
	if drawn < 100_000 {
		t.Fatalf("only %d cases had room", drawn)
	}
}

func TestChunkStart(t *testing.T) {
	for _, c := range []struct {
		start, size int64
		w           int
		want        int64
	}{
		{0, 4000, 100, 0}, {396_000, 4000, 100, 0}, {400_000, 4000, 100, 400_000}, {404_000, 4000, 100, 400_000},
		{-4000, 4000, 100, -400_000}, {-400_000, 4000, 100, -400_000}, {-404_000, 4000, 100, -800_000},
		{21_000, 7000, 2, 14_000}, {28_000, 7000, 1, 28_000}, {28_000, 7000, 0, 28_000}, {28_000, 7000, -3, 28_000},
		{28_123, 7000, 2, 28_000}, {28_000, 7000, math.MaxInt, 0},
	} {
		if got := ChunkStart(c.start, c.size, c.w); got != c.want {
			t.Errorf("ChunkStart(%d, %d, %d) = %d, want %d", c.start, c.size, c.w, got, c.want)
		}
	}
}

// TestChunkLaws: a chunk holds its windows, and each of them names it.
func TestChunkLaws(t *testing.T) {
	r := seeded(t)
	for range 50_000 {
		size, w := randomSize(r), 1+r.IntN(1000)
		start := (r.Int64N(20_000_000_000_000) - 10_000_000_000_000) / size * size
		chunk := ChunkStart(start, size, w)
		length := size * int64(w)
		if chunk > start || start >= chunk+length || chunk%length != 0 {
			t.Fatalf("start %d size %d w %d: %d", start, size, w, chunk)
		}
		if last := chunk + length - size; ChunkStart(last, size, w) != chunk ||
			ChunkStart(last+size, size, w) != chunk+length {
			t.Fatalf("start %d size %d w %d: %d does not hold its windows", start, size, w, chunk)
		}
	}
}
