package ratelimit

import (
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// TestTallyLosesNothing: however many counters a slice has, each has its sum in the
// end, and what all calls share waits for one write.
func TestTallyLosesNothing(t *testing.T) {
	var one tally
	list := make([]metrics.Counter, 30)
	for range 10 {
		one.add(&list[0])
	}
	if n := list[0].Value(); n != 0 || one.used != 1 {
		t.Errorf("%d are written before the end, %d places are used", n, one.used)
	}
	one.flush()
	one.flush()
	for range 10 {
		for i := range list {
			one.add(&list[i])
		}
	}
	one.flush()
	for i := range list {
		want := int64(10)
		if i == 0 {
			want = 20
		}
		if n := list[i].Value(); n != want {
			t.Errorf("counter %d: %d, want %d", i, n, want)
		}
	}
}
