package web

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// Bounds are what the clients of a server may take. The zero value suits a program with one or two servers.
type Bounds struct {
	Memory      *memory.Pool // for bodies and answers, perhaps shared with others; nil: one of 16 MiB
	Connections int          // open at a time; 0: 4,096, where there are memory and files for as many
	Turns       *Turns       // in which requests are computed, perhaps shared with other servers; nil: none
	Stats       *Stats       // counts what becomes of connections; nil: nothing does
	// First reports whether a request, such as a health check, gets a turn before others; nil: none does.
	First func(*http.Request) bool
	// HandshakeFailed is called for each TLS handshake that fails; nil: the log has them.
	HandshakeFailed func(client net.Addr, err error)
}

// Bounds of a server's connections if its Bounds have none: how many, bytes for each, and sixteenths of the limit of
// open files.
const (
	maxConns  = 4096
	connBytes = 64 << 10
	connFiles = 4
)

// NewServer returns a server of HTTP whose clients cannot hold it up: it bounds connections in
// number, headers and bodies in bytes, and in time whatever they send or fetch. An answer may take
// as long as write.
func (b Bounds) NewServer(h http.Handler, write time.Duration, log *slog.Logger) *http.Server {
	if b.Turns != nil {
		h = b.Turns.bound(b.First, h)
	}
	if b.Connections == 0 {
		b.Connections = memory.Read("/").Connections(maxConns, connBytes, connFiles)
	}
	stats := cmp.Or(b.Stats, new(Stats))
	stats.warnings.Store(&warnings{log, background.LogLimits{PerSecond: 1}})
	return &http.Server{
		Handler:           boundBytes(cmp.Or(b.Memory, memory.NewPool(maxBodies)), stats, h),
		ConnState:         newConns(b.Connections, stats).changed,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      write,
		IdleTimeout:       time.Minute,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1}, // as HTTP/1.1: no work ahead of what is read
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(newServerErrors(log, b.HandshakeFailed), slog.LevelError),
	}
}
