package headgate

import (
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// A gate counts the callers inside, and admits no more once it is closed. It counts in lanes, since cores that write
// the same word wait for each other.
//
// A caller counts itself, and then reads closed; close sets closed, and then reads the counts. So the counts include
// every caller that found the gate open. When all are 0 no caller is inside, and none can enter any more. A caller that
// leaves a closed gate, or is rejected by it, reads the counts after it has left; the last one reads only zeros.
type gate struct {
	closed  atomic.Bool
	ended   sync.Once
	drained chan struct{} // is closed when the gate is closed and no caller is inside
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
