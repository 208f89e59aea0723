package prefetch

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// Units that are held when the store's clock steps back expire once that is
// known, and not when the clock has caught up.
func TestClockStepEndsHeldUnits(t *testing.T) {
	for _, a := range sharable {
		if a == limit.TokenBucket {
			continue // its units count until it is full, and are held for a minute at least
		}
		r := newRig(t, Config{})
		o := op("k", newLimit(a, 100, time.Second), 1, 10)
		r.want("first", true, true, o)
		r.store.Ahead -= time.Hour
		r.want("more than is held", true, true, cost(o, 12))
		r.clock.Add(3 * time.Second)
		r.want("windows later", true, true, o)
		if held := r.held(o); held != 9 {
			t.Errorf("%v: %d are held", a, held)
		}
	}
}
