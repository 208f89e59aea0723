package stack

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

func TestClockNeverStepsBack(t *testing.T) {
	c := newClock()
	wall := c.start.UnixMicro()
	for i, step := range []struct{ wall, elapsed, want int64 }{
		{wall + 100, 100, wall + 100},
		{wall - 3_600_000_000, 200, wall + 200}, // set back an hour: goes on
		{wall - 3_599_999_000, 1200, wall + 1200},
		{wall + 5_000_000, 1300, wall + 5_000_000}, // set forward: follows
		{wall + 1400, 1400, wall + 5_000_100},
	} {
		if got := c.at(step.wall, step.elapsed); got != limit.Instant(step.want) {
			t.Errorf("step %d: got %d, want %d", i, int64(got)-wall, step.want-wall)
		}
	}
	if d := time.Since(newClock().now().Time()); d < 0 || d > time.Second {
		t.Errorf("a new clock is off by %v", d)
	}
}

// The wall clock is read again and again: who sets it forward is followed.
func TestClockFollowsTheWall(t *testing.T) {
	c := newClock()
	first := c.now()
	c.offset.Add(-time.Hour.Microseconds()) // as if it had been set forward an hour since
	for deadline := time.Now().Add(5 * time.Second); c.now() < first; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v behind", first.Sub(c.now()))
		}
	}
}
