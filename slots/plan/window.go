package plan

import "math/bits"

// MaxPerWindow is the largest capacity of a window, ten decimal digits.
const MaxPerWindow = 9_999_999_999

// drawBits is how many random bits a draw takes: with them and the largest
// size a product stays below 2^58, and every database has that many.
const drawBits = 31

// WindowStart returns the start, in milliseconds since the epoch, of the
// window of sizeMs milliseconds that holds the instant us microseconds since
// the epoch: the greatest multiple of sizeMs that is not after us,
// also before 1970. sizeMs must be positive.
func WindowStart(us, sizeMs int64) (startMs int64) {
	ms := floorDiv(us, 1000)
	return ms - floorMod(ms, sizeMs)
}

// Elapsed returns how much of its window of sizeMs milliseconds is over at the
// instant us microseconds since the epoch, in milliseconds rounded up.
//
// It is 0 exactly at the start of a window and sizeMs within the last
// millisecond; then no place of the window is left. Since it is rounded up, a
// slot at WindowStart + Elapsed or later is never before us. sizeMs must be
// positive.
func Elapsed(us, sizeMs int64) (ms int64) {
	ms = floorMod(floorDiv(us, 1000), sizeMs)
	if floorMod(us, 1000) != 0 {
		ms++
	}
	return ms
}

// FirstCapacity returns how many of the maxEvents places of a window of
// sizeMs milliseconds may be taken for an instant at which elapsedMs of them
// are over: maxEvents * (sizeMs-elapsedMs) / sizeMs, rounded down.
//
// It is maxEvents at the start of a window and 0 when nothing remains; a small
// maxEvents gives 0 earlier. The product fits int64 for maxEvents up to
// [MaxPerWindow] and sizeMs up to [MaxSizeMs]; sizeMs must be positive. Figures
// below 0 count as 0.
func FirstCapacity(maxEvents, elapsedMs, sizeMs int64) int64 {
	switch {
	case maxEvents <= 0 || elapsedMs >= sizeMs:
		return 0
	case elapsedMs <= 0:
		return maxEvents
	}
	return maxEvents * (sizeMs - elapsedMs) / sizeMs
}

// Draw maps 31 random bits onto the integers of [lo, hi):
// lo + floor(random * (hi-lo) / 2^31), with random in [0, 2^31).
//
// As an offset into a window, in milliseconds, it is the random jitter of an
// event: draw from [Elapsed, size) in the window of the
// requested instant, so that the slot is not before it, and from [0, size) in
// a later one. Every value is drawn from 2^31/(hi-lo) of the 2^31 bit patterns,
// rounded up or down: in windows of 4 s the chances of two milliseconds differ
// by at most 2 in a million, in windows of 24 h by at most 1 in 24.
//
// lo < hi is required; an empty range gives lo. Bits above the lowest 31 are
// ignored, so that the result is always in the range.
func Draw(random uint32, lo, hi int64) int64 {
	if lo >= hi {
		return lo
	}
	high, low := bits.Mul64(uint64(random&(1<<drawBits-1)), uint64(hi)-uint64(lo))
	return lo + int64(high<<(64-drawBits)|low>>drawBits)
}

// Stratum returns the offset into its window, in milliseconds, of an event
// under "jitter: stratified": the window falls into maxEvents strata
// of equal length, one for each place, and the event is put at random into the
// one after those of the events before it.
//
// count is how many events the window holds already, capacity how many it may
// hold for this event, and maxEvents how many at all. In the window of the
// requested instant elapsedMs is [Elapsed] and capacity is [FirstCapacity]; in
// a later one elapsedMs is 0 and capacity is maxEvents. In integers, with
// divisions rounded down,
//
//	k  = min(maxEvents - capacity + count, maxEvents - 1)
//	lo = max(elapsedMs, k*sizeMs/maxEvents)
//	hi = min(max(lo+1, (k+1)*sizeMs/maxEvents), sizeMs)
//
// and the offset is Draw(random, lo, hi): never before elapsedMs and always
// less than sizeMs. A stratum shorter than a millisecond becomes one.
//
// Of events with the same requested instant, every stratum holds at most one,
// so n consecutive strata hold at most n of them. Events with different
// requested instants in one window may meet in a stratum, because the count
// does not say where the events before are.
//
// It requires count < capacity <= maxEvents, elapsedMs < sizeMs, maxEvents
// from 1 to [MaxPerWindow] and sizeMs from 1 to [MaxSizeMs]; products then fit
// int64. A count beyond capacity gets the last stratum.
func Stratum(random uint32, count, capacity, maxEvents, elapsedMs, sizeMs int64) int64 {
	if maxEvents < 1 {
		return Draw(random, elapsedMs, sizeMs)
	}
	k := min(max(maxEvents-capacity+count, 0), maxEvents-1)
	lo := max(elapsedMs, k*sizeMs/maxEvents)
	hi := min(max(lo+1, (k+1)*sizeMs/maxEvents), sizeMs)
	return Draw(random, lo, hi)
}

// ChunkStart returns the start, in milliseconds since the epoch, of the chunk
// of w windows that holds the window at startMs. Chunks are aligned to
// the epoch as windows are, so that neighbouring requests provision the same
// rows. sizeMs must be positive; a w below 1 counts as 1.
func ChunkStart(startMs, sizeMs int64, w int) int64 {
	index := floorDiv(startMs, sizeMs)
	return (index - floorMod(index, int64(max(w, 1)))) * sizeMs
}

// floorDiv is a / b rounded down, for b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// floorMod is a - b*floorDiv(a, b), in [0, b), for b > 0.
func floorMod(a, b int64) int64 {
	m := a % b
	if m < 0 {
		m += b
	}
	return m
}
