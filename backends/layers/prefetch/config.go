package prefetch

import (
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Config bounds the held units. The zero Config is usable.
type Config struct {
	// MaxKeys bounds the number of keys that units are held for; zero means
	// 100,000. Beyond it, what has not been used for a minute makes room for
	// others; keys without one are not shared.
	MaxKeys int
	// Replicas is how many processes share the store at least; zero means one. Registry is where
	// they count each other; nil: there are no others.
	Replicas int
	Registry backends.Registry
	// Timeout bounds calls to the store that no request waits for; zero means one second.
	Timeout time.Duration
}

const (
	defaultMaxKeys = 100_000

	// ahead is how far the store's last instant may lie ahead of the next,
	// since answers can overtake each other.
	ahead = limit.Instant(limit.MinAhead / time.Microsecond)

	// idle is how long a key must not have been used to make room for others.
	idle = time.Minute
	// minBucketHold is how long units of a token bucket are held at least.
	minBucketHold = time.Minute
	// longTrip is longer than a trip to the store takes.
	longTrip = 5 * time.Second

	maxSweep = 16 // keys that are looked at to make room for one
)

func (c *Config) setDefaults() {
	if c.MaxKeys <= 0 {
		c.MaxKeys = defaultMaxKeys
	}
	c.Replicas = max(c.Replicas, 1)
	if c.Timeout <= 0 {
		c.Timeout = time.Second
	}
}
