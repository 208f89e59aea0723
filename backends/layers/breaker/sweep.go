package breaker

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// Slow says how the store keeps up with its callers, if it answers, but more than one in a hundred calls gets no answer
// before its deadline; else "".
func (b *Backend) Slow() string {
	if p := b.gait.slow.Load(); p != nil {
		return p.String()
	}
	return ""
}

// Usual returns the p99 of the calls in the last seconds and how long callers wait; "" if there were no calls.
func (b *Backend) Usual() string {
	p := b.gait.last.Load()
	if p == nil {
		return ""
	}
	return fmt.Sprintf("p99 %v, callers wait %v", p.P99.Round(10*time.Microsecond), p.Allowed.Round(time.Millisecond))
}

// Sweep, called once a second, judges the pace of the store every five seconds. While calls are late it pings the
// store, to know whether it answers, and how fast.
func (b *Backend) Sweep(limit.Instant) {
	g := &b.gait
	if (g.late.Load() > 0 || g.slow.Load() != nil) && g.pinging.CompareAndSwap(false, true) {
		g.pings.Add(1)
		b.cfg.Panics.Go("pace", func() {
			defer g.pings.Done()
			defer g.pinging.Store(false)
			b.timePing()
		})
	}
	if g.ticks++; g.ticks%paceEvery == 0 {
		b.judge()
	}
	b.cfg.OnTick()
}

// timePing measures how long the store takes: the shorter of two pings, as one may also have to connect.
func (b *Backend) timePing() {
	least := time.Duration(0)
	for range 2 {
		ctx, cancel := context.WithTimeout(b.gait.ctx, pacePatience*b.cfg.Timeout)
		began := b.now()
		err := silence(b.next.Ping(ctx))
		took := b.now().Sub(began)
		cancel()
		if err == nil && (least == 0 || took < least) {
			least = took
		}
	}
	if least > 0 {
		b.gait.took.Store(int64(least))
	}
}

func (b *Backend) judge() {
	g := &b.gait
	asked, late, refused := g.asked.Swap(0), g.late.Swap(0), g.refused.Swap(0)
	p := Pace{Took: time.Duration(g.took.Swap(0)), Allowed: time.Duration(g.allowed.Swap(0) / max(asked, 1)),
		Missed: float64(late+refused) / float64(max(asked+refused, 1)), P99: g.calls.take()}
	g.last.Store(nil)
	if p.P99 > 0 {
		g.last.Store(&p)
	}
	was := g.slow.Load()
	switch {
	case p.Took > 0 && late+refused >= fewMissed && p.Missed > mostMissed:
		g.bad, g.good = g.bad+1, 0
	case p.Missed <= mostMissed && (was == nil || asked > 0 || p.Took < was.Allowed):
		g.bad, g.good = 0, g.good+1
	default: // too little is known, or the store does not answer
		g.bad, g.good = 0, 0
		if was != nil && p.Took == 0 && late+refused >= fewMissed {
			g.slow.Store(nil)
			b.cfg.OnPace(Pace{}, false)
		}
	}
	switch {
	case g.bad >= paceTwice:
		g.slow.Store(&p)
		if was == nil {
			b.cfg.OnPace(p, true)
		}
	case g.good >= paceTwice && was != nil:
		g.slow.Store(nil)
		b.cfg.OnPace(p, false)
	}
}
