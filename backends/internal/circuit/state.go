package circuit

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/backends"
)

// A phase is a State, but for a half-open circuit it also says whether its
// one probe is under way.
type phase uint8

const (
	closed phase = iota
	open
	free // half-open, and the next call is the probe
	probing
)

func (ph phase) state() State { return [...]State{Closed, Open, HalfOpen, HalfOpen}[ph] }

// A Period is a phase and the number of changes before it. A call remembers
// the one it began in: what it finds out later says nothing about another.
type Period uint64

func (p Period) phase() phase { return phase(p & 3) }

// State returns the state in the period.
func (p Period) State() State { return p.phase().state() }

// Refuses says that calls are not let through, not even as a probe.
func (p Period) Refuses() bool { return p.phase() == open || p.phase() == probing }

// Period returns the present one.
func (c *Circuit) Period() Period { return Period(c.current.Load()) }

// A change waits to be reported.
type change struct {
	from, to State
	why      error
}

// enter begins a new period that ends after d by then, if not before. It is
// called with mu held.
func (c *Circuit) enter(ph phase, why error, d time.Duration, then func(Period)) Period {
	was := c.Period()
	p := was&^3 + 4 | Period(ph)
	c.current.Store(uint64(p))
	if c.timer != nil {
		c.timer.Stop()
	}
	if then != nil {
		c.timer = c.cfg.Panics.AfterFunc("circuit", d, func() { then(p) })
	}
	if from, to := was.phase().state(), ph.state(); from != to {
		c.changes = append(c.changes, change{from, to, why})
	}
	return p
}

// leave ends p by next, called with mu held, unless it is over already; it
// says which.
func (c *Circuit) leave(p Period, next func()) bool {
	c.mu.Lock()
	ours := c.Period() == p && !c.stopped
	if ours {
		next()
	}
	c.mu.Unlock()
	if ours {
		c.tell()
	}
	return ours
}

// tell calls OnChange for each change, one after the other and without mu.
// A caller that finds another goroutine at it leaves its changes to that one.
func (c *Circuit) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.telling && len(c.changes) > 0 {
		next := c.changes[0]
		c.changes = c.changes[1:]
		c.telling = true
		c.mu.Unlock()
		_ = c.cfg.Panics.Do("circuit", func() { c.cfg.OnChange(next.from, next.to, next.why) }) // it is reported
		c.mu.Lock()
		c.telling = false
	}
}

// Settle draws the conclusion from a call that began in p. why is why it
// failed.
func (c *Circuit) Settle(p Period, r Result, why error) {
	if r == Failed {
		c.failed.Add(1)
	}
	if p.phase() == closed && (r == Nothing || r == Succeeded && c.spotless.Load()) {
		return
	}
	c.leave(p, func() {
		switch {
		case p.phase() == closed:
			c.count(r == Failed, why)
		case r == Succeeded:
			c.close()
		case r == Failed:
			c.open(why)
		default:
			// The call said nothing, and others might go on like that.
			c.enter(probing, nil, 0, c.ping)
		}
	})
}

// count counts a call in a closed circuit.
func (c *Circuit) count(failure bool, why error) {
	c.tally.add(failure)
	c.spotless.Store(c.tally.failures == 0)
	if c.tally.inRow == c.cfg.Failures || c.cfg.Share > 0 && c.tally.share() >= c.cfg.Share {
		c.open(why)
	}
}

func (c *Circuit) open(why error) {
	if c.tries++; c.stayed {
		c.tries, c.stayed = 0, false
	}
	c.opened.Add(1)
	// Not wrapped: what is true of why, such as having been applied, is not
	// true of a call that was never made.
	refusal := fmt.Errorf("%w: %w: not asked, as it failed before: %v", backends.ErrUnavailable, backends.ErrNotApplied, why)
	c.refusal.Store(&refusal)
	c.enter(open, why, c.delay(), c.halfOpen)
}

// delay returns how long to stay open.
func (c *Circuit) delay() time.Duration {
	d := c.cfg.Delay
	for range c.tries {
		if d *= 2; d >= c.cfg.MaxDelay {
			d = c.cfg.MaxDelay
			break
		}
	}
	return d - time.Duration(c.cfg.Rand()*float64(d)/2)
}

func (c *Circuit) halfOpen(p Period) {
	c.leave(p, func() { c.enter(free, nil, c.cfg.PingAfter, c.ping) })
}

func (c *Circuit) close() {
	c.tally.reset(c.cfg.Window)
	c.spotless.Store(true)
	c.enter(closed, nil, c.cfg.MaxDelay, func(p Period) {
		c.leave(p, func() { c.stayed = true })
	})
}

// Claim makes the caller's call the probe, if p still waits for one, and returns
// the period to settle it in.
func (c *Circuit) Claim(p Period) (Period, bool) {
	if p.phase() != free {
		return p, false
	}
	ok := c.leave(p, func() { p = c.probe() })
	return p, ok
}

// probe begins the period of a probe, called with mu held. A probe that does
// not end has failed; when it ends after all, nobody asks any more.
func (c *Circuit) probe() Period {
	c.probes.Add(1)
	return c.enter(probing, nil, c.cfg.Timeout, func(p Period) {
		c.leave(p, func() { c.open(errOverdue) })
	})
}

// ping is the probe where no call was, or none that told anything. It runs in
// the timer's goroutine, which Wait waits for.
func (c *Circuit) ping(p Period) {
	hangs := false
	ours := c.leave(p, func() {
		if hangs = c.pinging; hangs {
			c.open(errOverdue) // one at a time, even where it ignores its deadline
			return
		}
		c.pinging = true
		c.background.Add(1)
		p = c.probe()
	})
	if !ours || hangs {
		return
	}
	defer c.background.Done()
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Timeout)
	defer cancel()
	var err error
	if failed := c.cfg.Panics.Do("ping", func() { err = c.cfg.Ping(ctx) }); failed != nil {
		err = fmt.Errorf("%w: %w", backends.ErrUnavailable, failed)
	}
	c.mu.Lock()
	c.pinging = false
	c.mu.Unlock()
	if err != nil {
		c.Settle(p, Failed, err)
	} else {
		c.Settle(p, Succeeded, nil)
	}
}

// A tally is what the last calls were.
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
