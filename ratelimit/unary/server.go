package unary

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/safego"
)

// Config configures a [Server]. Zero values mean the default; the defaults
// suit proxies that ask for decisions.
type Config struct {
	// Handlers has the handler of each method by its full name, such as
	// "/grpc.health.v1.Health/Check".
	Handlers map[string]Handler
	// UnknownHint is added to the message of a call to an unknown method, to
	// tell where it may be found.
	UnknownHint string

	// Identify, if set, says who a client is by its TLS connection. It is
	// called once for each, and what it returns is Call.Peer.
	Identify func(*tls.ConnectionState) string

	MaxMessageSize       int // bytes of a request, decompressed; default 256 KiB
	MaxHeaderListSize    int // bytes of a request's headers, as HTTP/2 counts them; default 32 KiB
	MaxConcurrentStreams int // calls in flight on a connection; default 1024
	MaxConnections       int // open at a time, more are closed at once; default 16384
	// MaxBuffered bounds the bytes that all connections together keep in memory
	// for open calls, requests and answers; default 256 MiB. When it is reached
	// each connection has a fair share, of 32 KiB at least, so that all of them
	// may come to twice as much for a moment.
	MaxBuffered int
	// MaxHeld bounds the bytes of requests that one connection keeps in memory,
	// but for the first 2 KiB of each; default four messages of the largest
	// size, and 1 MiB at least.
	MaxHeld int

	// Workers is how many goroutines run Serve functions, and so how many
	// slices of calls are served at a time; default 16 per CPU.
	Workers int
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
	Panics *safego.Reporter
	// Log gets what is refused, shed and ended badly, at most a line a second of
	// each kind, and handlers that panic; default [slog.Default].
	Log *slog.Logger

	standIn *Handler // for a test client that knows no gRPC: takes any request as a call
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
				return fmt.Errorf("method %s asks for %q, which is no header name in lower case", name, header)
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
		{"MaxBuffered", &conf.MaxBuffered, 256 << 20, 1 << 40},
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
	if conf.Log == nil {
		conf.Log = slog.Default()
	}
	if conf.Panics == nil {
		conf.Panics = &safego.Reporter{Log: conf.Log}
	}
	return nil
}

// A Server serves unary gRPC calls on any number of listeners.
type Server struct {
	conf     Config
	log      *slog.Logger
	handlers map[string]*handler
	standIn  *handler // see Config.standIn; nil but in one test

	ctx     context.Context // of the handlers; ends at Close
	stop    context.CancelFunc
	running sync.WaitGroup // all goroutines of the server but those of Serve
	queue   queue
	held    atomic.Int64  // bytes of requests in memory, see hold
	memory  atomic.Int64  // bytes of all that connections keep, see footprint
	open    atomic.Int64  // connections
	full    chan struct{} // signals that memory is at its bound

	mu        sync.Mutex
	started   bool
	draining  bool
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	empty     chan struct{} // closed when draining and no connection is left

	stats   stats
	tallies [numTroubles]tally
}

type stats struct {
	accepted, refusedConns, answered, failed, cancelled, refusedCalls, shed atomic.Uint64
	protocolErrors, floods, timeouts                                        atomic.Uint64
	failures                                                                [numCodes]atomic.Uint64 // by code
}

// Stats counts what a server has done since it was made.
type Stats struct {
	Connections    int              // open now
	Accepted       uint64           // connections
	Refused        uint64           // connections above MaxConnections
	Answered       uint64           // calls with a reply
	Failed         uint64           // calls with an error, of the handler's or of ours
	Codes          [numCodes]uint64 // all of these by code, that of others under 2, UNKNOWN
	Cancelled      uint64           // calls that the client gave up
	RefusedStreams uint64           // calls above MaxConcurrentStreams
	Shed           uint64           // calls above QueueLimit; they also count as failed or answered
	ProtocolErrors uint64           // connections ended with an error of the client's
	Floods         uint64           // of these, for too many useless frames
	Timeouts       uint64           // connections and calls ended because the client was too slow
	Buffered       int64            // bytes of requests in memory, but for the first 2 KiB of each
	Memory         int64            // bytes that count against MaxBuffered
}

// New makes a server.
func New(conf Config) (*Server, error) {
	if err := conf.validate(); err != nil {
		return nil, fmt.Errorf("unary: %w", err)
	}
	s := &Server{
		conf: conf, log: conf.Log,
		handlers:  make(map[string]*handler, len(conf.Handlers)),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
		empty:     make(chan struct{}),
		full:      make(chan struct{}, 1),
	}
	for name, h := range conf.Handlers {
		s.handlers[name] = &handler{Handler: h, method: name}
	}
	if conf.standIn != nil {
		s.standIn = &handler{Handler: *conf.standIn}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.queue.init(conf.QueueLimit, conf.Panics, s.sweep)
	return s, nil
}

func (s *Server) find(path string) *handler { return s.handlers[path] }

// ErrClosed is what Serve returns after Shutdown or Close.
var ErrClosed = errors.New("unary: server closed")

// Serve serves the connections of a listener until it fails or the server is
// shut down or closed, which it reports as [ErrClosed]. It closes the listener.
// TLS is the listener's business; its connections must then agree on the
// protocol "h2". Serve may be called for several listeners.
func (s *Server) Serve(ln net.Listener) error {
	defer ln.Close()
	if !s.listen(ln) {
		return ErrClosed
	}
	defer s.unlisten(ln)
	var pause time.Duration
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			s.accept(nc)
			continue
		case s.stopped():
			return ErrClosed
		case !isTemporary(err):
			return fmt.Errorf("unary: accept: %w", err)
		}
		// Most likely there are no file descriptors left. Connections that
		// end will give some back.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.log.Warn("accept failed, trying again", "error", err, "after", pause)
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return ErrClosed
		}
	}
}

func isTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// listen registers a listener and starts the server's goroutines.
func (s *Server) listen(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || s.closed {
		return false
	}
	s.listeners[ln] = struct{}{}
	if !s.started {
		s.started = true
		s.running.Add(1 + s.conf.Workers)
		s.conf.Panics.Go("watch", s.watch)
		for range s.conf.Workers {
			s.conf.Panics.Go("worker", s.work)
		}
	}
	return true
}

func (s *Server) unlisten(ln net.Listener) {
	s.mu.Lock()
	delete(s.listeners, ln)
	s.mu.Unlock()
}

func (s *Server) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining || s.closed
}

// accept starts a connection, if there is room for it.
func (s *Server) accept(nc net.Conn) {
	c := newConn(s, nc, time.Now())
	s.mu.Lock()
	room := !s.draining && !s.closed && len(s.conns) < s.conf.MaxConnections
	if room {
		s.conns[c] = struct{}{}
		s.open.Add(1)
		s.running.Add(1)
	}
	s.mu.Unlock()
	if !room {
		s.stats.refusedConns.Add(1)
		s.trouble(tooManyConnections, 1, nc.RemoteAddr(), "")
		closeNow(nc)
		return
	}
	s.stats.accepted.Add(1)
	s.conf.Panics.Go("connection", func() {
		defer s.running.Done()
		c.serve()
	})
}

// hold counts a goroutine in, unless the server is closed.
func (s *Server) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// remove forgets a connection and logs how it ended, if it ended badly.
func (s *Server) remove(c *conn, why string) {
	s.mu.Lock()
	delete(s.conns, c)
	s.open.Add(-1)
	if s.draining && len(s.conns) == 0 {
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
	closed := s.closed
	s.mu.Unlock()
	if why != "" && !closed {
		s.trouble(connectionEnded, 1, c.nc.RemoteAddr(), why)
	}
}

// connectionAge is when a new connection is drained, or 0.
func (s *Server) connectionAge() time.Duration {
	age := s.conf.MaxConnectionAge
	if tenth := int64(age / 10); tenth > 0 {
		age += time.Duration(rand.Int64N(2*tenth) - tenth)
	}
	return age
}

// Shutdown stops listening and ends all connections without losing a call:
// clients get GOAWAY, and what they have sent until then is answered.
// It returns when all connections have ended and the server is closed, as by
// [Server.Close]; when ctx ends first, it closes them and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	first := !s.draining && !s.closed
	s.draining = true
	for ln := range s.listeners {
		_ = ln.Close() // Serve sees it
	}
	conns := slices.Collect(maps.Keys(s.conns))
	if first && len(conns) == 0 {
		close(s.empty)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		c.now = time.Now()
		c.startDrain()
		c.mu.Unlock()
		c.flushSoon()
	}
	var err error
	select {
	case <-s.empty:
	case <-s.ctx.Done():
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, s.Close())
}

// Close closes all listeners and connections at once and ends the handlers'
// context. It returns when the handlers have returned, or after
// [Config.CloseTimeout] with an error.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for ln := range s.listeners {
		_ = ln.Close() // Serve sees it
	}
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	s.stop()
	s.queue.close()
	for _, c := range conns {
		c.mu.Lock()
		c.kill("")
		c.mu.Unlock()
	}
	done := make(chan struct{})
	s.conf.Panics.Go("close", func() {
		defer close(done)
		s.running.Wait()
	})
	select {
	case <-done:
		return nil
	case <-time.After(s.conf.CloseTimeout):
		return errors.New("unary: a handler does not return")
	}
}

// Stats returns the server's counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	open := len(s.conns)
	s.mu.Unlock()
	n := &s.stats
	codes := [numCodes]uint64{OK: n.answered.Load()}
	for code := range n.failures {
		codes[code] += n.failures[code].Load()
	}
	return Stats{
		Codes:       codes,
		Connections: open, Accepted: n.accepted.Load(), Refused: n.refusedConns.Load(),
		Answered: n.answered.Load(), Failed: n.failed.Load(), Cancelled: n.cancelled.Load(),
		RefusedStreams: n.refusedCalls.Load(), Shed: n.shed.Load(),
		ProtocolErrors: n.protocolErrors.Load(), Floods: n.floods.Load(), Timeouts: n.timeouts.Load(),
		Buffered: s.held.Load(), Memory: s.memory.Load(),
	}
}
