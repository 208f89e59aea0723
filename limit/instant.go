package limit

import "time"

// An Instant is a point in time in microseconds since the Unix epoch. Zero
// stands for "the store's own clock".
type Instant int64

// maxExact is the largest product that state and decisions may need.
const maxExact = 1 << 52

// MaxInstant (year 2112) is the last instant: beyond it, time stands still. It
// keeps sums of an instant and a window below 2^53.
const MaxInstant = Instant(maxExact)

// InstantOf returns t as an Instant, rounded down.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMicro()) }

// Time returns i as a time in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// Add returns i moved by the whole microseconds of d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Microseconds()) }

// AddUp returns i moved by d, which is rounded up to whole microseconds.
func (i Instant) AddUp(d time.Duration) Instant {
	return i + Instant(ceilDiv(int64(d), int64(time.Microsecond)))
}

// Sub returns how long after j i is.
func (i Instant) Sub(j Instant) time.Duration { return micros(int64(i - j)) }

func bounded(i Instant) Instant { return min(max(i, 0), MaxInstant) }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
