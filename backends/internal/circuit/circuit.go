// Package circuit is what circuit breakers have in common: it counts failures,
// opens after too many, and finds out by one probe at a time whether to close
// again. What a call is and what counts as a failure is for its users to say.
package circuit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/safego"
)

// A State is what a Circuit says about calls.
type State uint8

// The states.
const (
	Closed   State = iota // they go through
	Open                  // they fail at once
	HalfOpen              // one goes through and the others fail
)

// String returns the state as a label.
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

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
	Panics *safego.Reporter
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
	changes    []change // not told yet
	telling    bool
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

// A Result is what a call says about what is behind the circuit.
type Result uint8

// The results.
const (
	Nothing Result = iota
	Succeeded
	Failed
)
