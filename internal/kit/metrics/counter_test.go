package metrics

import (
	"sync"
	"testing"
)

// TestCounterIsExact: a counter shows all that was counted, in lanes and not, by as many callers as there are, also
// while it gets lanes; and it has none before it has counted a lot.
func TestCounterIsExact(t *testing.T) {
	var c Counter
	var callers sync.WaitGroup
	const each = 50_000
	for range 8 {
		callers.Go(func() {
			lane := NextLane()
			for n := range each {
				c.AddIn(lane, 2)
				if n%2 == 0 {
					c.Inc()
				}
			}
		})
	}
	last := int64(0)
	for range 1000 {
		n := c.Value()
		if n < last {
			t.Fatalf("the counter falls from %d to %d", last, n)
		}
		last = n
	}
	callers.Wait()
	if n := c.Value(); n != 8*each*5/2 || c.lanes.Load() == nil {
		t.Errorf("the counter is %d, want %d; lanes: %v", n, 8*each*5/2, c.lanes.Load() != nil)
	}
	var cold Counter
	cold.AddIn(1, enough)
	if cold.lanes.Load() != nil || cold.Value() != enough {
		t.Errorf("a counter of %d, want %d, has lanes: %v", cold.Value(), enough, cold.lanes.Load() != nil)
	}
	(*Counter)(nil).AddIn(1, 1)
}
