package breaker

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/headgate-rls/headgate/backends/internal/circuit"
	"github.com/headgate-rls/headgate/internal/kit/background"
)

// A State is what a breaker does with Takes.
type State = circuit.State

// The states.
const (
	Closed   = circuit.Closed   // lets them through
	Open     = circuit.Open     // fails them at once
	HalfOpen = circuit.HalfOpen // lets one through and fails the others
)

// Config says when a Backend opens and how it closes again. The zero Config is
// usable.
type Config struct {
	// Failures in a row open the breaker; zero means 5, a negative number
	// never. A store of several nodes fails in part and so, by chance, several
	// times in a row: leave such a one to Share.
	Failures int
	// Share is the share of failures among the last Window takes that opens
	// the breaker; zero means 0.5, a negative number never. Takes that have
	// not been yet count as successes.
	Share float64
	// Window is how many takes Share looks back on; zero means 100.
	Window int
	// MinBudget is how long a Take must have waited for its timeout to count:
	// callers in a great hurry say nothing about the store. Zero means 2 ms.
	MinBudget time.Duration

	// Delay is how long the breaker stays open at first, and MaxDelay after
	// many failed probes, each of which doubles it. From both, chance takes
	// off up to a half. Zero means 100 ms and 1 s.
	Delay, MaxDelay time.Duration
	// PingAfter is how long a half-open breaker waits for a Take to be its
	// probe before it sends a Ping; zero means 100 ms.
	PingAfter time.Duration
	// Timeout bounds a probe, and a Take or Ping whose context has no
	// deadline; zero means 500 ms.
	Timeout time.Duration
	// MaxInFlight is how many Takes are under way at most; what comes then is
	// refused at once. Zero means 1024.
	MaxInFlight int

	// OnChange is called for each change of state, once and in order. why is the
	// failure that opened the breaker, otherwise nil. It is called on the way
	// of a Take or of a timer and must not block; it may call the Backend.
	OnChange func(from, to State, why error)

	// OnDeclined is called for each Take of which the store answered that it declines some requests: see
	// [backends.ErrDeclined]. It must not block.
	OnDeclined func(why error)

	// OnPace is called when the store has become slower than its callers wait, and when it no longer is: see
	// [Backend.Slow]. OnTick is called once a second. Neither may block.
	OnPace func(p Pace, slow bool)
	OnTick func()

	// Panics are reported to it; nil means to the default logger.
	Panics *background.Reporter

	// Rand returns chance in [0, 1); nil means that of math/rand.
	Rand func() float64
}

func (c *Config) setDefaults() {
	c.Failures = cmp.Or(c.Failures, 5)
	c.Window = cmp.Or(c.Window, 100)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 1024)
	c.Share = cmp.Or(c.Share, 0.5)
	c.MinBudget = cmp.Or(max(c.MinBudget, 0), 2*time.Millisecond)
	c.Delay = cmp.Or(max(c.Delay, 0), 100*time.Millisecond)
	c.MaxDelay = cmp.Or(max(c.MaxDelay, 0), time.Second)
	c.MaxDelay = max(c.MaxDelay, c.Delay)
	c.PingAfter = cmp.Or(max(c.PingAfter, 0), 100*time.Millisecond)
	c.Timeout = cmp.Or(max(c.Timeout, 0), 500*time.Millisecond)
	c.Window = max(c.Window, 1)
	if c.OnChange == nil {
		c.OnChange = func(State, State, error) {}
	}
	if c.OnDeclined == nil {
		c.OnDeclined = func(error) {}
	}
	if c.OnPace == nil {
		c.OnPace = func(Pace, bool) {}
	}
	if c.OnTick == nil {
		c.OnTick = func() {}
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
}
