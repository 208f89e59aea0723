package denycache

import "time"

// Config says how much to keep and for how long. The zero Config is usable.
type Config struct {
	// MaxKeys bounds the number of refusals kept; zero means 100,000. They are
	// kept in sets of eight, so a small number is rounded.
	MaxKeys int
	// MaxAge bounds how long a refusal is believed, whatever its Retry; zero
	// means a second. What other replicas give back, reset or raise takes
	// effect here within it.
	MaxAge time.Duration
}

const (
	defaultMaxKeys = 100_000
	defaultMaxAge  = time.Second

	ways = 8 // refusals in a set
)

func (c *Config) setDefaults() {
	if c.MaxKeys <= 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if c.MaxAge <= 0 {
		c.MaxAge = defaultMaxAge
	}
}
