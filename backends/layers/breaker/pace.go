package breaker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Pace says how a store keeps up with its callers.
type Pace struct {
	Took    time.Duration // that the store needs for an answer
	Allowed time.Duration // that its callers wait, on average
	Missed  float64       // which share of the calls the store did not answer in time
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

	slow atomic.Pointer[Pace] // nil: it keeps up, or does not answer at all

	ticks, bad, good int // for Sweep alone
	pinging          atomic.Bool
	pings            sync.WaitGroup
	ctx              context.Context
	cancel           context.CancelFunc
}

// ended counts a call.
func (g *gait) ended(allowed time.Duration, late bool) {
	g.asked.Add(1)
	g.allowed.Add(int64(allowed))
	if late {
		g.late.Add(1)
	}
}

// stopPings ends pings that are measured. wait waits for the last.
func (g *gait) stopPings() { g.cancel() }
func (g *gait) wait()      { g.pings.Wait() }

func (g *gait) init() { g.ctx, g.cancel = context.WithCancel(context.Background()) }
