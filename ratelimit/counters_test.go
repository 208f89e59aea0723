package ratelimit

import (
	"testing"
)

// writes are a counter and how often it was written.
type writes struct{ sum, times int64 }

func (w *writes) Count(n int64) { w.sum, w.times = w.sum+n, w.times+1 }

// TestTallyLosesNothing: however many counters a slice has, each has its sum in the
// end, and one that all calls share is written once.
func TestTallyLosesNothing(t *testing.T) {
	var one tally
	counters := make([]writes, 30)
	list := make([]HitCounter, len(counters))
	for i := range counters {
		list[i] = &counters[i]
	}
	for range 10 {
		one.add(&list[0])
	}
	one.flush()
	one.flush()
	if counters[0] != (writes{10, 1}) {
		t.Errorf("one counter: %+v", counters[0])
	}
	for range 10 {
		for i := range list {
			one.add(&list[i])
		}
	}
	one.flush()
	for i, c := range counters {
		want := int64(10)
		if i == 0 {
			want = 20
		}
		if c.sum != want {
			t.Errorf("counter %d: %+v, want a sum of %d", i, c, want)
		}
	}
}
