package breaker

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// A Pace says how a store keeps up with its callers.
type Pace struct {
	Took    time.Duration // that the store needs for an answer
	Allowed time.Duration // that its callers wait, on average
	Missed  float64       // which share of the calls the store did not answer in time
	P99     time.Duration // of the durations of calls, rounded up by at most a quarter; 0 without calls
}

// String says it to people.
func (p Pace) String() string {
	return fmt.Sprintf("answers in %v, callers wait %v, %.0f %% answered by policy", p.Took.Round(time.Millisecond),
		p.Allowed.Round(time.Millisecond), 100*p.Missed)
}

const (
	paceEvery  = 5 // seconds that a judgement is about
	paceTwice  = 2 // judgements in a row that make a difference
	fewMissed  = 5 // calls that say nothing
	mostMissed = 0.01
	// pacePatience is how much longer than a call a ping may take whose time is measured.
	pacePatience = 4
)

// A gait is what is known of the pace of a store: counts of the last seconds, which begin again at each judgement.
type gait struct {
	asked, late, refused atomic.Int64 // calls
	allowed              atomic.Int64 // ns that those asked wait
	took                 atomic.Int64 // ns of the slowest ping, 0 if none was answered
	calls                spread       // how long calls took

	slow atomic.Pointer[Pace] // nil: it keeps up, or does not answer at all
	last atomic.Pointer[Pace] // the last judgement; nil before the first, and if there were no calls

	ticks, bad, good int // for Sweep alone
	pinging          atomic.Bool
	pings            sync.WaitGroup
	ctx              context.Context
	cancel           context.CancelFunc
}

// ended counts a call.
func (g *gait) ended(allowed, took time.Duration, late bool) {
	g.asked.Add(1)
	g.calls.add(took)
	g.allowed.Add(int64(allowed))
	if late {
		g.late.Add(1)
	}
}

// A spread is a histogram of durations, with four steps for each power of two of a microsecond.
type spread [4 * 32]atomic.Uint32

func (s *spread) add(d time.Duration) {
	us := uint64(max(d.Microseconds(), 4))
	power := bits.Len64(us) - 3 // so that us>>power is 4 to 7
	s[min(4*power+int(us>>power)-4, len(s)-1)].Add(1)
}

// take returns the 99th percentile, and resets the histogram.
func (s *spread) take() (p99 time.Duration) {
	var counts [len(spread{})]uint32
	sum, seen := uint64(0), uint64(0)
	for i := range s {
		counts[i] = s[i].Swap(0)
		sum += uint64(counts[i])
	}
	for i, n := range counts {
		if seen += uint64(n); n > 0 && 100*seen >= 99*sum {
			return time.Duration((i%4+5)<<(i/4)) * time.Microsecond // where the step ends
		}
	}
	return 0
}
