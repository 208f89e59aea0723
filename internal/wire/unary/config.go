package unary

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/memory"
	"github.com/headgate-rls/headgate/internal/wire/handshake"
)

// Config configures a [Server]. Zero values mean the default; the defaults
// suit proxies that ask for decisions.
type Config struct {
	// Handlers has the handler of each method by its full name, such as
	// "/grpc.health.v1.Health/Check".
	Handlers map[string]Handler
	// UnknownHint is added to the message of a call to an unknown method, to
	// say where it may be found.
	UnknownHint string

	// TLS, if set, is how connections are encrypted.
	TLS *tls.Config
	// Identify, if set, says who a client is by its TLS connection. It is
	// called once for each, and what it returns is Call.Peer.
	Identify func(*tls.ConnectionState) string

	// Handshakes, if set, bounds the handshakes of TLS together with those of other
	// servers that have it.
	Handshakes *handshake.Bounds

	// Failures, if set, counts the handshakes of TLS that fail.
	Failures *handshake.Failures

	MaxMessageSize       int // bytes of a request, decompressed; default 256 KiB
	MaxHeaderListSize    int // bytes of a request's headers, as HTTP/2 counts them; default 32 KiB
	MaxConcurrentStreams int // calls in flight on a connection; default 1024
	MaxConnections       int // open at a time; idle ones make room for more, which are else closed; default 16384
	// Memory is what all connections together keep for open calls, requests and
	// answers, perhaps with holders elsewhere; default a pool of 256 MiB. When half of
	// it is used, each connection may keep a fair share of the other half, of 8 KiB at
	// least.
	Memory *memory.Pool
	// MaxHeld bounds the bytes of requests that one connection keeps in memory,
	// but for the first 2 KiB of each; default four messages of the largest
	// size, and 1 MiB at least.
	MaxHeld int

	// Workers is how many goroutines run Serve functions, and so how many
	// slices of calls are served at a time; default 16 per CPU.
	Workers int
	// Alone, where set, reports whether the calls of a connection are served each by itself now, so that none of them
	// waits for what another one needs; default: those that arrive together are one slice.
	Alone func() bool
	// QueueLimit is how many calls may wait for a worker; default 8192. When
	// there are more, the connection with the most of them loses its latest.
	QueueLimit int

	// ReadTimeout bounds how long a client may take for the TLS handshake
	// with the HTTP/2 preface, for the rest of a frame or of a header block,
	// and for the rest of a request; default 10 s.
	ReadTimeout time.Duration
	// WriteTimeout bounds how long a client may take to read what is sent to
	// it, and to give window to an answer; default 10 s.
	WriteTimeout time.Duration
	// KeepaliveInterval is how long a client may be quiet before it is sent a
	// ping, and KeepaliveTimeout how long the answer may take; default 60 s
	// and 20 s. A negative interval means no pings.
	KeepaliveInterval, KeepaliveTimeout time.Duration
	// IdleTimeout is how long a connection may be without calls before it is
	// drained; 0 means for ever.
	IdleTimeout time.Duration
	// MaxConnectionAge is when a connection is drained, give or take a tenth;
	// 0 means never.
	MaxConnectionAge time.Duration
	// Grace is how long a connection that is drained may take to end its
	// calls; default 30 s.
	Grace time.Duration
	// CloseTimeout is how long Close waits for handlers; default 2 s.
	CloseTimeout time.Duration

	// Panics are reported to it; nil means to Log.
	Panics *background.Reporter
	// Log gets what is refused, shed and ended badly, at most a line a second of
	// each kind, and handlers that panic; default [slog.Default].
	Log *slog.Logger
}

// validate fills in the defaults.
func (conf *Config) validate() error {
	for name, h := range conf.Handlers {
		if !strings.HasPrefix(name, "/") || strings.Count(name, "/") != 2 {
			return fmt.Errorf("method %q is not of the form /package.Service/Method", name)
		}
		if h.Inline == nil && h.Serve == nil {
			return fmt.Errorf("method %s has neither Inline nor Serve", name)
		}
		for _, header := range h.Metadata {
			if !validName(header) {
				return fmt.Errorf("method %s asks for %q, which is not a header name in lower case", name, header)
			}
		}
	}
	for _, n := range []struct {
		name   string
		value  *int
		normal int
		most   int
	}{
		{"MaxMessageSize", &conf.MaxMessageSize, 256 << 10, 64 << 20},
		{"MaxHeaderListSize", &conf.MaxHeaderListSize, 32 << 10, 1 << 20},
		{"MaxConcurrentStreams", &conf.MaxConcurrentStreams, 1024, 1 << 20},
		{"MaxConnections", &conf.MaxConnections, 16384, 1 << 24},
		{"MaxHeld", &conf.MaxHeld, 0, 1 << 40},
		{"Workers", &conf.Workers, 16 * runtime.GOMAXPROCS(0), 1 << 16},
		{"QueueLimit", &conf.QueueLimit, 8192, 1 << 20},
	} {
		if *n.value == 0 {
			*n.value = n.normal
		}
		if *n.value < 0 || *n.value > n.most {
			return fmt.Errorf("%s is %d, want 1 to %d", n.name, *n.value, n.most)
		}
	}
	for _, d := range []struct {
		name   string
		value  *time.Duration
		normal time.Duration
	}{
		{"ReadTimeout", &conf.ReadTimeout, 10 * time.Second},
		{"WriteTimeout", &conf.WriteTimeout, 10 * time.Second},
		{"KeepaliveTimeout", &conf.KeepaliveTimeout, 20 * time.Second},
		{"IdleTimeout", &conf.IdleTimeout, 0},
		{"MaxConnectionAge", &conf.MaxConnectionAge, 0},
		{"Grace", &conf.Grace, 30 * time.Second},
		{"CloseTimeout", &conf.CloseTimeout, 2 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.normal
		}
		if *d.value < 0 {
			return fmt.Errorf("%s is negative", d.name)
		}
	}
	if conf.MaxHeld == 0 {
		conf.MaxHeld = max(4*(conf.MaxMessageSize+messagePrefix), 1<<20)
	}
	if conf.KeepaliveInterval == 0 {
		conf.KeepaliveInterval = time.Minute
	}
	if conf.Memory == nil {
		conf.Memory = memory.NewPool(memory.DefaultPool)
	}
	if conf.Handshakes == nil {
		conf.Handshakes = handshake.New(conf.Memory.Limit() / 8)
	}
	if conf.Log == nil {
		conf.Log = slog.Default()
	}
	if conf.Panics == nil {
		conf.Panics = &background.Reporter{Log: conf.Log}
	}
	return nil
}

// checkInterval is how often connections are checked: often enough for the
// shortest of the timeouts.
func (conf *Config) checkInterval() time.Duration {
	shortest := 4 * time.Second
	for _, d := range []time.Duration{conf.ReadTimeout, conf.WriteTimeout, conf.KeepaliveInterval,
		conf.KeepaliveTimeout, conf.IdleTimeout, conf.MaxConnectionAge, conf.Grace} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return max(shortest/8, 5*time.Millisecond)
}
