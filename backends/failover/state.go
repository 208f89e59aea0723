package failover

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/backends"
)

// A phase is a State, but for a half-open breaker it also says whether its
// one probe is under way.
type phase uint8

const (
	closed phase = iota
	open
	free // half-open, and the next Take is the probe
	probing
)

func (ph phase) state() State { return [...]State{Closed, Open, HalfOpen, HalfOpen}[ph] }

// A period is a phase and the number of changes before it. A call remembers
// the one it began in: what it finds out later says nothing about another.
type period uint64

func (p period) phase() phase { return phase(p & 3) }

func (b *Breaker) period() period { return period(b.current.Load()) }

// A change waits to be told.
type change struct {
	from, to State
	why      error
}

// enter begins a new period that ends after d by then, if not before. It is
// called with mu held.
func (b *Breaker) enter(ph phase, why error, d time.Duration, then func(period)) period {
	was := b.period()
	p := was&^3 + 4 | period(ph)
	b.current.Store(uint64(p))
	if b.timer != nil {
		b.timer.Stop()
	}
	if then != nil {
		b.timer = time.AfterFunc(d, func() { then(p) })
	}
	if from, to := was.phase().state(), ph.state(); from != to {
		b.changes = append(b.changes, change{from, to, why})
	}
	return p
}

// leave ends p by next, called with mu held, unless it is over already; it
// says which.
func (b *Breaker) leave(p period, next func()) bool {
	b.mu.Lock()
	ours := b.period() == p && !b.shut
	if ours {
		next()
	}
	b.mu.Unlock()
	if ours {
		b.tell()
	}
	return ours
}

// tell calls OnChange for each change, one after the other and without mu.
// Whoever finds another goroutine at it leaves its changes to that one.
func (b *Breaker) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.telling && len(b.changes) > 0 {
		c := b.changes[0]
		b.changes = b.changes[1:]
		b.telling = true
		b.mu.Unlock()
		b.cfg.OnChange(c.from, c.to, c.why)
		b.mu.Lock()
		b.telling = false
	}
}

// settle draws the conclusion from a call that began in p.
func (b *Breaker) settle(p period, r result, why error) {
	if r == failed {
		b.failed.Add(1)
	}
	if p.phase() == closed && (r == nothing || r == succeeded && b.spotless.Load()) {
		return
	}
	b.leave(p, func() {
		switch {
		case p.phase() == closed:
			b.count(r == failed, why)
		case r == succeeded:
			b.close()
		case r == failed:
			b.open(why)
		default:
			// The Take said nothing, and others might go on like that.
			b.enter(probing, nil, 0, b.ping)
		}
	})
}

// count counts a Take in a closed breaker.
func (b *Breaker) count(failure bool, why error) {
	b.tally.add(failure)
	b.spotless.Store(b.tally.failures == 0)
	if b.tally.inRow == b.cfg.Failures || b.cfg.Share > 0 && b.tally.share() >= b.cfg.Share {
		b.open(why)
	}
}

func (b *Breaker) open(why error) {
	now := b.now()
	if p := b.period(); p.phase() == closed && now.Sub(b.closedAt) >= b.cfg.MaxDelay {
		b.tries = 0 // the store had stayed
	} else {
		b.tries++
	}
	b.opened.Add(1)
	// Not wrapped: what is true of why, such as having been applied, is not
	// true of a Take that was never sent.
	refusal := fmt.Errorf("%w: %w: not asked, as it failed before: %v", backends.ErrUnavailable, backends.ErrNotApplied, why)
	b.refusal.Store(&refusal)
	b.enter(open, why, b.delay(), b.halfOpen)
}

// delay returns how long to stay open.
func (b *Breaker) delay() time.Duration {
	d := b.cfg.Delay
	for range b.tries {
		if d *= 2; d >= b.cfg.MaxDelay {
			d = b.cfg.MaxDelay
			break
		}
	}
	return d - time.Duration(b.cfg.Rand()*float64(d)/2)
}

func (b *Breaker) halfOpen(p period) {
	b.leave(p, func() { b.enter(free, nil, b.cfg.PingAfter, b.ping) })
}

func (b *Breaker) close() {
	b.tally.reset(b.cfg.Window)
	b.spotless.Store(true)
	b.closedAt = b.now()
	b.enter(closed, nil, 0, nil)
}

// claim makes the caller's Take the probe, if there is none yet.
func (b *Breaker) claim(p period) (period, bool) {
	ok := b.leave(p, func() { p = b.probe() })
	return p, ok
}

// probe begins the period of a probe, called with mu held. A probe that does
// not end has failed; when it ends after all, nobody asks any more.
func (b *Breaker) probe() period {
	b.probes.Add(1)
	return b.enter(probing, nil, b.cfg.Timeout, func(p period) {
		b.leave(p, func() { b.open(errOverdue) })
	})
}

// ping is the probe where no Take was, or none that told anything. It runs in
// the timer's goroutine, which Close waits for.
func (b *Breaker) ping(p period) {
	hangs := false
	ours := b.leave(p, func() {
		if hangs = b.pinging; hangs {
			b.open(errOverdue) // one at a time, even where it ignores its deadline
			return
		}
		b.pinging = true
		b.background.Add(1)
		p = b.probe()
	})
	if !ours || hangs {
		return
	}
	defer b.background.Done()
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.Timeout)
	defer cancel()
	err := b.next.Ping(ctx)
	b.mu.Lock()
	b.pinging = false
	b.mu.Unlock()
	if err != nil {
		b.settle(p, failed, err)
	} else {
		b.settle(p, succeeded, nil)
	}
}

// A tally is what the last takes were.
type tally struct {
	inRow    int    // failures since the last success
	failures int    // among last
	last     []bool // which were failures, a ring
	at       int    // the oldest
}

func (t *tally) reset(window int) {
	if len(t.last) != window {
		t.last = make([]bool, window)
	}
	clear(t.last)
	t.inRow, t.failures, t.at = 0, 0, 0
}

func (t *tally) add(failure bool) {
	if t.last[t.at] {
		t.failures--
	}
	t.last[t.at] = failure
	t.at = (t.at + 1) % len(t.last)
	if failure {
		t.inRow++
		t.failures++
	} else {
		t.inRow = 0
	}
}

func (t *tally) share() float64 { return float64(t.failures) / float64(len(t.last)) }
