// Package web has what HTTP endpoints share: listeners and the bounds of servers, the one
// form of errors, strict reading of JSON, readiness, and the guard in front of admin paths.
package web

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// Bounds are what the clients of a server may take. The zero value suits a program with memory for all of it.
type Bounds struct {
	Memory      *memory.Pool // for bodies of requests, perhaps shared with others; nil: one of 16 MiB
	Connections int          // open at a time; 0: 4,096
	Turns       *Turns       // in which requests are computed, perhaps shared with other servers; nil: none
	Stats       *Stats       // counts what becomes of connections; nil: nothing does
	// HandshakeFailed is called for each TLS handshake that fails; nil: the log has them.
	HandshakeFailed func(client net.Addr, err error)
}

// maxConns is how many connections a server has at most.
const maxConns = 4096

// NewServer returns a server of HTTP whose clients cannot hold it up: it bounds connections in
// number, headers and bodies in bytes, and in time whatever they send or fetch. An answer may take
// as long as write.
func (b Bounds) NewServer(h http.Handler, write time.Duration, log *slog.Logger) *http.Server {
	if b.Turns != nil {
		h = b.Turns.bound(h)
	}
	return &http.Server{
		Handler:           boundBodies(cmp.Or(b.Memory, memory.NewPool(maxBodies)), h),
		ConnState:         newConns(cmp.Or(b.Connections, maxConns), cmp.Or(b.Stats, new(Stats))).changed,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      write,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(newServerErrors(log, b.HandshakeFailed), slog.LevelError),
	}
}
