package prefetch

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

const (
	maxPace = limit.MaxUnits / 4096 // units that a pace counts in a second
	few     = 8                     // units that a slow key takes at once, at most
)

// A pace is how many units a key is asked for.
type pace struct {
	second    time.Duration // when the current second began
	cur, prev int64         // units in it, and in the one before
}

// count adds units.
func (p *pace) count(n int64, now time.Duration) {
	switch d := now - p.second; {
	case d < time.Second:
	case d < 2*time.Second:
		p.prev, p.cur, p.second = p.cur, 0, p.second+time.Second
	default:
		*p = pace{second: now}
	}
	p.cur = min(p.cur+min(max(n, 0), maxPace), maxPace)
}

// lastSecond returns how many units were asked for in the second before now, about.
func (p *pace) lastSecond(now time.Duration) int64 {
	switch ms := (now - p.second).Milliseconds(); {
	case ms < 1000:
		return p.cur + p.prev*(1000-ms)/1000
	case ms < 2000: // and nothing has come since
		return p.cur * (2000 - ms) / 1000
	}
	return 0
}

// portion returns how many units to take at once: what a tenth of a second takes, or what half a second
// takes if that is a few.
func (p *pace) portion(now time.Duration) int64 {
	second := p.lastSecond(now)
	return min(max(second/10, few), second/2)
}

// adaptive is the part of a holding whose share follows the traffic.
type adaptive struct {
	pace       pace
	queued     bool          // in the queue
	givenAt    limit.Instant // of the last request, if callers give instants
	returnable int64         // units taken at takenAt, some of which may be spent
	takenAt    limit.Instant
}

// noteTaken notes that n units were taken at an instant. Only those that were taken last can be returned, but all of
// one window.
func (h *holding) noteTaken(n int64, at limit.Instant) {
	if h.limit.Is(limit.Isolated) {
		n += h.returnable
	}
	h.returnable, h.takenAt = n, at
}
