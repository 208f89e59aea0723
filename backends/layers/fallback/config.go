package fallback

import (
	"cmp"
	"time"
)

// Config bounds a Backend. The zero Config is usable.
type Config struct {
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
	// OnReconcile is called by Run for each reconciliation that settled
	// something. err says why something may be left.
	OnReconcile func(r Result, err error)
}

func (c *Config) setDefaults() {
	c.MaxKeys = cmp.Or(c.MaxKeys, 100_000)
	c.MaxLimits = cmp.Or(c.MaxLimits, 16_384)
	c.Slice = cmp.Or(c.Slice, 64)
	c.Slice = max(c.Slice, 1)
	c.Timeout = cmp.Or(max(c.Timeout, 0), 500*time.Millisecond)
	c.Every = cmp.Or(max(c.Every, 0), time.Second)
	if c.OnReconcile == nil {
		c.OnReconcile = func(Result, error) {}
	}
}

// A Result is what one reconciliation came to.
type Result struct {
	Keys  int   // settled with the primary
	Units int64 // charged there
	Short int64 // units for which there was no room any more
	Ended int   // keys whose units no longer counted
	Left  int   // keys that are still to be settled
}
