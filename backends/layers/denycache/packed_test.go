package denycache

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate-rls/headgate/limit"
)

// TestPacked: a refusal that fits comes back as it was, with each figure at its largest too, and others do not fit.
func TestPacked(t *testing.T) {
	if size := unsafe.Sizeof(set{}) / ways; size > 49 {
		t.Errorf("a refusal takes %d bytes, not at most 49", size)
	}
	l := newLimit(limit.TokenBucket, 1, time.Hour)
	random := rand.New(rand.NewPCG(1, 2))
	most := [6]int64{1<<costBits - 1, 1<<atBits - 1, 1<<sentBits - 1, 1<<remainingBits - 1, never - 1, 1<<resetBits - 1}
	of := func(figures [6]int64) refusal {
		micros := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
		return refusal{limit: l, cost: figures[0], at: limit.Instant(figures[1]), sent: micros(figures[2]),
			remaining: figures[3], retry: micros(figures[4]), reset: micros(figures[5]), room: random.IntN(2) == 0,
			recall: random.IntN(2) == 0}
	}
	same := func(r refusal) {
		t.Helper()
		if p, fits := r.pack(); !fits || p.unpack() != r {
			t.Fatalf("%+v comes back as %+v, fits: %v", r, p.unpack(), fits)
		}
	}
	for range 10_000 {
		var figures [6]int64
		for i := range figures {
			figures[i] = random.Int64N(most[i]+1) >> random.IntN(40)
		}
		r := of(figures)
		same(r)
		r.retry = limit.Never
		same(r)
	}
	same(of(most))
	for i := range most {
		for _, wrong := range []int64{most[i] + 1, -1} {
			figures := most
			figures[i] = wrong
			if _, fits := new(of(figures)).pack(); fits {
				t.Errorf("figure %d fits as %d", i, wrong)
			}
		}
	}
}
