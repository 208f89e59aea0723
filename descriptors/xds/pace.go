package xds

import (
	"math/rand/v2"
	"time"
)

// A backoffRange is how long to wait before connecting again.
type backoffRange struct{ first, most time.Duration }

// A retry counts failures in a row.
type retry struct {
	span  backoffRange
	times int
}

// next returns the time to wait after another failure: any up to a span that doubles
// each time, so that replicas do not come back together. Lived is for how long the
// connection that has failed was of use; one that soon fails again does not count as a
// success.
func (r *retry) next(lived time.Duration) time.Duration {
	if lived > r.span.most {
		r.times = 0
	}
	span := r.span.most
	if r.times < 16 {
		span = min(span, r.span.first<<r.times)
	}
	r.times++
	return r.span.first/10 + rand.N(span)
}

// A pacer keeps a control plane that sends without end from taking a processor: it allows
// some responses at once, and then makes the reader pause in proportion to its work.
type pacer struct {
	left int
	last time.Time
}

// Of responses in a row, freeResponses are read without a pause. Each quietFor without one
// gives one back.
const (
	freeResponses = 20
	quietFor      = time.Second
	leastPause    = 250 * time.Millisecond
	mostPause     = 10 * time.Second
	pauseFactor   = 9 // a tenth of one processor at most
)

// pause returns how long not to read after a response that came at now and took work.
func (p *pacer) pause(now time.Time, work time.Duration) time.Duration {
	if p.last.IsZero() {
		p.left = freeResponses
	}
	p.left = min(freeResponses, p.left+int(now.Sub(p.last)/quietFor))
	p.last = now
	if p.left > 0 {
		p.left--
		return 0
	}
	return min(mostPause, max(leastPause, pauseFactor*work))
}
