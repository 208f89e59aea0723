package stack

import (
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A clock is the wall clock, except that it never steps back: states of long
// windows would stand still until it had caught up. Where the wall clock is set
// back, time goes on from where it was at the pace of the monotonic clock.
type clock struct {
	start  time.Time
	offset atomic.Int64 // wall time at start as seen since, µs
	next   atomic.Int64 // when the wall clock is to be read again, in µs since start
}

// wallEvery is how often the wall clock is read, in µs: to read the monotonic one alone takes half the time.
const wallEvery = 1000

// newClock returns a clock that shows the present time.
func newClock() *clock {
	c := &clock{start: time.Now()}
	c.offset.Store(c.start.UnixMicro())
	return c
}

// now returns the present instant.
func (c *clock) now() limit.Instant {
	elapsed := time.Since(c.start).Microseconds() // monotonic
	if elapsed < c.next.Load() {
		return limit.Instant(c.offset.Load() + elapsed)
	}
	t := time.Now()
	elapsed = t.Sub(c.start).Microseconds()
	c.next.Store(elapsed + wallEvery)
	return c.at(t.UnixMicro(), elapsed)
}

// at returns the time when the wall shows wall and elapsed µs have passed.
func (c *clock) at(wall, elapsed int64) limit.Instant {
	for {
		old := c.offset.Load()
		if wall-elapsed <= old {
			return limit.Instant(old + elapsed)
		}
		if c.offset.CompareAndSwap(old, wall-elapsed) {
			return limit.Instant(wall)
		}
	}
}
