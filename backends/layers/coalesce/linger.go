package coalesce

import (
	"sync/atomic"
	"time"
)

// Callers who are answered together often ask again at once. Where the store works on one
// slice at a time, the next slice would leave before they do: two halves of the callers
// would take turns, and each slice would have only one half. So a worker lingers after a
// slice: it waits until as many requests have come as it has answered, for a small share
// of the time that the slice took. It stops lingering where that does not pay, as with
// callers who do not wait for one answer before they ask again.

const (
	lingerShare = 16 // a linger is at most this part of the slice's time,
	maxLinger   = 250 * time.Microsecond
	// maxSkips is after how many slices a worker lingers again, if lingering brought no more requests.
	maxSkips = 255
)

// A linger is that of a lane. Its fields but awaited are guarded by the lane's mu.
type linger struct {
	awaited atomic.Int64 // how many requests are still to come; 0 if no worker lingers
	skip    int          // how many slices are not lingered after
	skips   int          // what skip was set to last
}

// begin reports whether a worker is to linger until n requests have come.
func (g *linger) begin(n int) bool {
	switch {
	case n <= 0 || g.awaited.Load() > 0:
		return false
	case g.skip > 0:
		g.skip--
		return false
	}
	g.awaited.Store(int64(n))
	return true
}

// came notes n requests.
func (g *linger) came(n int) {
	if g.awaited.Load() > 0 {
		g.awaited.Add(-int64(n))
	}
}

// end judges a linger for n requests: it has paid if most of them have come.
func (g *linger) end(n int) {
	missing := max(g.awaited.Swap(0), 0)
	g.skips = min(2*g.skips+1, maxSkips)
	if 2*missing <= int64(n) {
		g.skips = 0
	}
	g.skip = g.skips
}
