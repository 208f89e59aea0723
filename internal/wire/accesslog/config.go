package accesslog

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// Leases ends and renews leases, as a *leases.Tracker does. The methods are
// called concurrently and return when ctx ends.
type Leases interface {
	// Apply ends or renews the leases of tokens, which may be anything, and
	// returns whose they are. What it cannot do in time it does later. domain is
	// for logs: tokens say which domain they are of.
	Apply(ctx context.Context, domain string, a leases.Action, tokens []string) []leases.OwnerID
	// Watch notes that an access log is open that has reported leases of the
	// owner's, until closed is called.
	Watch(owner leases.OwnerID) (closed func())
}

// DefaultMaxStreams is how many streams of access logs may be open at once.
const DefaultMaxStreams = 4096

// Config says where tokens are found in entries, and sets bounds. The zero Config
// is usable.
type Config struct {
	// Namespaces are those of filter_metadata in which leases are looked for;
	// default envoy.filters.http.ratelimit.
	Namespaces []string
	// Keys are the names of leases there, all of which are tried; default
	// ratelimit.DefaultLeaseKey.
	Keys []string
	// MaxStreams is how many streams may be open at once; default
	// DefaultMaxStreams. Each worker thread of an Envoy has one.
	// MaxStreamsPerPeer bounds those of one peer, which is an identity in a client certificate, or else a host;
	// default a quarter of MaxStreams.
	MaxStreams, MaxStreamsPerPeer int
	// FirstEntry is how long a stream may be silent when it is new; default
	// 10 s. Envoy opens one when it has something to say.
	FirstEntry time.Duration
	// EndDelay is how long ends are delayed, so that the call about the same end
	// comes first; default 1 s. When the stream ends they are applied at once.
	EndDelay time.Duration
	// MaxEntries is how many entries of one message are looked at; default
	// 10,000.
	MaxEntries int
	// Timeout bounds each call of Leases; default 500 ms.
	Timeout time.Duration
	// Log gets what an operator acts on, at most a line per second; nil
	// discards it.
	Log *slog.Logger
	// Count counts n events; nil counts nothing. It is called concurrently.
	Count func(e leases.LogEvent, n int)
	// Panics are reported to it; nil means to the default logger.
	Panics *background.Reporter
}

func (c *Config) setDefaults() {
	if len(c.Namespaces) == 0 {
		c.Namespaces = []string{"envoy.filters.http.ratelimit"}
	}
	if len(c.Keys) == 0 {
		c.Keys = []string{ratelimit.DefaultLeaseKey}
	}
	c.MaxStreams = cmp.Or(max(c.MaxStreams, 0), DefaultMaxStreams)
	c.MaxStreamsPerPeer = cmp.Or(max(c.MaxStreamsPerPeer, 0), max(1, c.MaxStreams/4))
	c.FirstEntry = cmp.Or(max(c.FirstEntry, 0), 10*time.Second)
	c.EndDelay = cmp.Or(max(c.EndDelay, 0), time.Second)
	c.MaxEntries = cmp.Or(max(c.MaxEntries, 0), 10_000)
	c.Timeout = cmp.Or(max(c.Timeout, 0), ratelimit.DefaultTimeout)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Count == nil {
		c.Count = func(leases.LogEvent, int) {}
	}
}
