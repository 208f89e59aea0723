package headgate

import "sync/atomic"

// A gate counts those who are inside, until it is closed.
type gate struct {
	n       atomic.Int64 // inside; closedGate lower once it is closed
	closed  atomic.Bool
	ended   atomic.Bool
	drained chan struct{} // is closed when the gate is closed and nobody is inside
}

const closedGate = -1 << 62

// enter reports whether the gate is open. A caller that has entered must leave.
func (g *gate) enter() bool {
	if g.n.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() { g.drain(g.n.Add(-1)) }

// close closes the gate. The channel is closed when nobody is inside.
func (g *gate) close() <-chan struct{} {
	if g.closed.CompareAndSwap(false, true) {
		g.drain(g.n.Add(closedGate))
	}
	return g.drained
}

func (g *gate) drain(n int64) {
	if n == closedGate && g.ended.CompareAndSwap(false, true) {
		close(g.drained)
	}
}
