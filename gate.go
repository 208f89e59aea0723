package headgate

import (
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// A gate counts those who are inside, until it is closed. It counts in lanes, since cores that write the same word wait
// for each other.
//
// Who enters counts itself, and then looks at closed; close sets closed, and then looks at the counts. So the counts
// have all who found the gate open, and once they are all 0, nobody is inside: nobody comes in any more. Who leaves
// a closed gate, or comes too late, looks at them after it has left, and the last of those finds only zeros.
type gate struct {
	closed  atomic.Bool
	ended   sync.Once
	drained chan struct{} // is closed when the gate is closed and nobody is inside
	lanes   [metrics.MaxLanes]struct {
		_      [64]byte // no other lane and no other field is on the same cache line
		inside atomic.Int64
		_      [56]byte
	}
}

// enter reports whether the gate is open. A caller that has entered must leave by the same lane.
func (g *gate) enter(lane int) bool {
	if g.closed.Load() { // or callers without end would keep the counts above 0
		return false
	}
	g.lanes[lane].inside.Add(1)
	if !g.closed.Load() {
		return true
	}
	g.leave(lane)
	return false
}

// leave reports whether somebody else is inside by the same lane.
func (g *gate) leave(lane int) (shared bool) {
	n := g.lanes[lane].inside.Add(-1)
	if g.closed.Load() {
		g.drain()
	}
	return n > 0
}

// close closes the gate. The channel is closed when nobody is inside.
func (g *gate) close() <-chan struct{} {
	g.closed.Store(true)
	g.drain()
	return g.drained
}

func (g *gate) drain() {
	for i := range g.lanes {
		if g.lanes[i].inside.Load() != 0 {
			return
		}
	}
	g.ended.Do(func() { close(g.drained) })
}
