package failover

import (
	"math/rand/v2"
	"time"

	"github.com/headgate-rls/headgate/internal/safego"
)

// Config says when a Breaker opens and how it closes again. The zero Config is
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
	// of a Take or of a timer and must not block; it may call the Breaker.
	OnChange func(from, to State, why error)

	// Panics are reported to it; nil means to the default logger.
	Panics *safego.Reporter

	// Rand returns chance in [0, 1); nil means that of math/rand.
	Rand func() float64
}

func (c *Config) setDefaults() {
	setInt(&c.Failures, 5)
	setInt(&c.Window, 100)
	setInt(&c.MaxInFlight, 1024)
	if c.Share == 0 {
		c.Share = 0.5
	}
	setDuration(&c.MinBudget, 2*time.Millisecond)
	setDuration(&c.Delay, 100*time.Millisecond)
	setDuration(&c.MaxDelay, time.Second)
	c.MaxDelay = max(c.MaxDelay, c.Delay)
	setDuration(&c.PingAfter, 100*time.Millisecond)
	setDuration(&c.Timeout, 500*time.Millisecond)
	c.Window = max(c.Window, 1)
	if c.OnChange == nil {
		c.OnChange = func(State, State, error) {}
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
}

// LocalConfig bounds a Local. The zero LocalConfig is usable.
type LocalConfig struct {
	// Replicas is the number of processes that share the limits. Each decides
	// by its share, rounded down but not below one unit. Zero and one mean
	// that each decides by the whole limit.
	Replicas int
	// ServerClock says that the primary has a clock, by which it is charged.
	ServerClock bool
	// MaxKeys is how many keys are remembered at most; zero means 100,000.
	// What is admitted for others is not charged.
	MaxKeys int
	// MaxLimits is how many shares of limits are kept at most; zero means
	// 16,384. Others are computed again.
	MaxLimits int
	// Slice is how many keys are charged at once; zero means 64.
	Slice int
	// Timeout bounds the charge of one slice; zero means 500 ms.
	Timeout time.Duration

	// Every is how often Run reconciles what is pending even without a
	// Signal; zero means 1 s. Single failures leave something behind though
	// no breaker ever opened.
	Every time.Duration
	// Deadline bounds each reconciliation by Run; zero means 10 s.
	Deadline time.Duration
	// OnReconcile is called by Run for each reconciliation that settled
	// something. err says why something may be left.
	OnReconcile func(r Result, err error)
}

func (c *LocalConfig) setDefaults() {
	setInt(&c.MaxKeys, 100_000)
	setInt(&c.MaxLimits, 16_384)
	setInt(&c.Slice, 64)
	c.Slice = max(c.Slice, 1)
	setDuration(&c.Timeout, 500*time.Millisecond)
	setDuration(&c.Every, time.Second)
	setDuration(&c.Deadline, 10*time.Second)
	if c.OnReconcile == nil {
		c.OnReconcile = func(Result, error) {}
	}
}

func setInt(to *int, value int) {
	if *to == 0 {
		*to = value
	}
}

func setDuration(to *time.Duration, value time.Duration) {
	if *to <= 0 {
		*to = value
	}
}
