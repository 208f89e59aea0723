package circuit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
)

// Config says when a Circuit opens and how it closes again. Every field must
// be set.
type Config struct {
	// Failures in a row open the circuit, if positive.
	Failures int
	// Share is the share of failures among the last Window calls that opens
	// the circuit, if positive. Window must be.
	Share  float64
	Window int
	// Delay is how long the circuit stays open at first, and MaxDelay after
	// many failed probes, each of which doubles it. From both, chance takes
	// off up to a half.
	Delay, MaxDelay time.Duration
	// PingAfter is how long a half-open circuit waits for a call to be its
	// probe before it pings. Zero is for users that never claim one.
	PingAfter time.Duration
	// Timeout bounds a probe.
	Timeout time.Duration
	// Ping asks what is behind the circuit. There is one at a time, in a
	// goroutine that Wait waits for; its context ends with Stop.
	Ping func(ctx context.Context) error
	// OnChange is called for each change of state, once and in order. why is the
	// failure that opened the circuit, otherwise nil. It is called on the way
	// of a Settle or of a timer and must not block; it may call the Circuit.
	OnChange func(from, to State, why error)
	// Panics of Ping and OnChange are reported to it.
	Panics *background.Reporter
	// Rand returns chance in [0, 1).
	Rand func() float64
}

// A Circuit is the state of a circuit breaker.
type Circuit struct {
	cfg    Config
	ctx    context.Context // of pings; ends with Stop
	cancel context.CancelFunc

	current  atomic.Uint64         // a Period
	refusal  atomic.Pointer[error] // what calls get while it is not closed
	spotless atomic.Bool           // no failure is counted, so successes need not be

	failed, opened, probes atomic.Uint64

	mu         sync.Mutex
	tally      tally
	tries      int         // delays since what is behind last stayed
	stayed     bool        // it has been closed for MaxDelay, or always
	timer      *time.Timer // of the present period
	pinging    bool        // even if its result is no longer waited for
	stopped    bool
	background sync.WaitGroup
	changes    []change // not reported yet
	reporting  bool
}

var errOverdue = fmt.Errorf("%w: a probe did not end in time", backends.ErrUnavailable)

// New returns a closed circuit.
func New(cfg Config) *Circuit {
	c := &Circuit{cfg: cfg, stayed: true}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.tally.reset(cfg.Window)
	c.spotless.Store(true)
	return c
}

// Stop ends what the circuit does by itself. It keeps its state from then on.
func (c *Circuit) Stop() {
	c.mu.Lock()
	c.stopped = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.cancel()
}

// Wait waits, after Stop, for a ping under way.
func (c *Circuit) Wait() { c.background.Wait() }

// Counts are how often something happened.
type Counts struct {
	Failed uint64 // calls and pings settled as such
	Opened uint64 // changes to Open
	Probes uint64 // calls and pings that were to find out
}

// Counts returns the counts so far.
func (c *Circuit) Counts() Counts {
	return Counts{Failed: c.failed.Load(), Opened: c.opened.Load(), Probes: c.probes.Load()}
}

// Refusal returns what a call gets that is not let through: an error that says
// why the circuit opened.
func (c *Circuit) Refusal() error { return *c.refusal.Load() }

// Period returns the present one.
func (c *Circuit) Period() Period { return Period(c.current.Load()) }

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
		c.report()
	}
	return ours
}

// report calls OnChange for each change, one after the other and without mu.
// A caller that finds another goroutine at it leaves its changes to that one.
func (c *Circuit) report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.reporting && len(c.changes) > 0 {
		next := c.changes[0]
		c.changes = c.changes[1:]
		c.reporting = true
		c.mu.Unlock()
		_ = c.cfg.Panics.Do("circuit", func() { c.cfg.OnChange(next.from, next.to, next.why) }) // it is reported
		c.mu.Lock()
		c.reporting = false
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
	c.tries++
	if c.stayed {
		c.tries, c.stayed = 0, false
	}
	c.opened.Add(1)
	// Not wrapped: what is true of why, such as having been applied, is not
	// true of a call that was never made.
	refusal := fmt.Errorf("%w: %w: not asked, as it failed before: %v", backends.ErrUnavailable,
		backends.ErrNotApplied, why)
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

// ping is the probe if there was no call whose result says how the store is. It runs in
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
