package fleet

import (
	"sync"
	"time"

	"github.com/headgate-rls/headgate/ratelimit/insight"
)

// A pace measures how much a process answers. The zero value has seen nothing. It may be used concurrently.
type pace struct {
	mu      sync.Mutex
	samples []sample // of the last minute, the oldest first
}

// A sample is how much was counted at a time.
type sample struct {
	at                         time.Time
	answers, refused, byPolicy int64
	unmatched                  int64
}

// A Rate is the traffic of the last minute, or since the first look.
type Rate struct {
	PerSecond float64
	// Refused, ByPolicy and Unmatched are parts of all answers, from 0 to 1.
	Refused, ByPolicy, Unmatched float64
	Last                         time.Time // of the last call, to the second; zero: there was none
}

// sampleEvery is the least time between two samples, and a minute has so many.
const (
	sampleEvery = every - time.Second
	maxSamples  = 16
)

// rate returns the traffic of the last minute, and notes it for later.
func (p *pace) rate(t *insight.Traffic, now time.Time) (r Rate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := sample{now, t.Answers.Value(), t.Refused.Value(), t.ByPolicy.Value(), t.Unmatched.Value()}
	if n := len(p.samples); n == 0 || s.at.Sub(p.samples[n-1].at) >= sampleEvery {
		p.samples = append(p.samples, s)
	}
	for len(p.samples) > maxSamples || len(p.samples) > 1 && now.Sub(p.samples[0].at) > time.Minute+every {
		p.samples = p.samples[1:]
	}
	first := p.samples[0]
	if n := float64(s.answers - first.answers); n > 0 {
		r.PerSecond = n / max(s.at.Sub(first.at).Seconds(), 1)
		r.Refused, r.ByPolicy = float64(s.refused-first.refused)/n, float64(s.byPolicy-first.byPolicy)/n
		r.Unmatched = float64(s.unmatched-first.unmatched) / n
	}
	r.Last = t.Last()
	return r
}
