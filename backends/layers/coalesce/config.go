package coalesce

import (
	"cmp"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// Config bounds what is under way. The zero Config is usable.
type Config struct {
	// Servers returns which of the store's servers decide a request: see
	// [backends.Partitioned]. Requests of other servers have slices of their own, so
	// that a slow server does not delay them. Nil means that there is one server.
	Servers func(req *limit.Request) uint64
	// InFlight is how many slices the store works on at once; zero means 2. Of
	// several servers each has as many, and so has each set of servers that requests
	// are decided by together.
	InFlight int
	// MaxSlice is how many requests are gathered into one slice; zero means
	// 256. A caller's own slice is never cut, however long.
	MaxSlice int
	// Queue is how many requests wait at most, for a server or a set of them; zero
	// means 4096. What comes then is refused at once.
	Queue int
	// Timeout bounds a Take whose context has no deadline; zero means 500 ms.
	Timeout time.Duration
	// Answers says whether the store answers in time. What is not sent while it
	// does fails with [backends.ErrOverloaded]: more arrives than the store can
	// be asked about. Nil means that it always does.
	Answers func() bool
	// Panics are reported to it; nil means to the default logger.
	Panics *background.Reporter
}

func (c *Config) setDefaults() {
	c.InFlight = cmp.Or(max(c.InFlight, 0), 2)
	c.MaxSlice = cmp.Or(max(c.MaxSlice, 0), 256)
	c.Queue = cmp.Or(max(c.Queue, 0), 4096)
	c.Timeout = cmp.Or(max(c.Timeout, 0), 500*time.Millisecond)
	if c.Answers == nil {
		c.Answers = func() bool { return true }
	}
}
