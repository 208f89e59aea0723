package background

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSkippedEventsAreReported: a limiter allows its number of events in each
// second, and then reports how many it skipped.
func TestSkippedEventsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := LogLimit{PerSecond: 2}
		for second := range 3 {
			for i := range 5 {
				ok, skipped := l.Allow()
				want := int64(0)
				if second > 0 && i == 0 {
					want = 3
				}
				if ok != (i < 2) || skipped != want {
					t.Errorf("second %d, event %d: %v, %d skipped", second, i, ok, skipped)
				}
			}
			time.Sleep(time.Second)
		}
	})
}

// TestMessagesHaveLimitsOfTheirOwn: many events with one message do not hide an
// event with another message.
func TestMessagesHaveLimitsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := LogLimits{PerSecond: 1}
		allowed := map[string]int{}
		for range 10 {
			for _, m := range []string{"one", "two"} {
				if ok, _ := b.Allow(m); ok {
					allowed[m]++
				}
			}
		}
		if allowed["one"] != 1 || allowed["two"] != 1 {
			t.Errorf("%v are allowed", allowed)
		}
	})
}
