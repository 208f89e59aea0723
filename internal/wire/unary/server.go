package unary

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/sockio"
)

// A Server serves unary gRPC calls on any number of listeners.
type Server struct {
	*shared
	workers workers

	mu        sync.Mutex
	started   bool
	draining  bool
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	leaving   int           // connections that makeRoom has closed, whose goroutines have not ended
	empty     chan struct{} // closed when draining and no connection is left
}

// New makes a server.
func New(conf Config) (*Server, error) {
	if err := conf.validate(); err != nil {
		return nil, fmt.Errorf("unary: %w", err)
	}
	s := &Server{
		shared:    newShared(conf),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
		empty:     make(chan struct{}),
	}
	s.workers.init(s.shared)
	return s, nil
}

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
		s.conf.Log.Warn("accept failed; retrying", "error", err, "after", pause)
		if background.Sleep(s.ctx, pause) != nil {
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
		s.tasks.start("watch", (&watcher{s.shared, s.list}).watch)
		s.workers.start()
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
	nc = sockio.Conn(nc)
	if s.conf.TLS != nil {
		nc = tls.Server(s.conf.Handshakes.Conn(nc), s.conf.TLS)
	}
	c := newConn(s.shared, &s.workers, nc, s.lifetime())
	if !s.add(c) {
		s.counters.refusedConns.Add(1)
		s.events.add(tooManyConnections, 1, nc.RemoteAddr(), "")
		closeNow(nc)
		return
	}
	s.counters.accepted.Add(1)
	s.tasks.run("connection", func() {
		defer s.remove(c)
		c.serve()
	})
}

// add enters a connection, if there is room for it.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || s.closed || len(s.conns) >= s.conf.MaxConnections && !s.makeRoom() || !s.tasks.enter() {
		return false
	}
	s.conns[c] = struct{}{}
	s.pool.Join()
	return true
}

// sample is how many connections makeRoom looks at, so that a flood of new ones costs little.
const sample = 16

// maxLeaving bounds connections that are closed and have not ended: about 10 MB.
const maxLeaving = 1000

// makeRoom closes the connection that is used least, of some, and reports false if all of them are in use. So
// connections that wait do not keep out those that make calls. A closed one takes no place, even before it has ended.
func (s *Server) makeRoom() bool {
	if s.leaving >= maxLeaving {
		return false
	}
	var least *conn
	var used time.Time
	now, seen := time.Now(), 0
	for c := range s.conns {
		if at, idle := c.lastUsed(now); idle && (least == nil || at.Before(used)) {
			least, used = c, at
		}
		if seen++; seen == sample {
			break
		}
	}
	if least == nil {
		return false
	}
	s.counters.displaced.Add(1)
	s.leaving++
	delete(s.conns, least)
	least.mu.Lock()
	least.close("another connection needs its place")
	least.mu.Unlock()
	return true
}

// remove removes a connection and logs how it ended, if it ended badly.
func (s *Server) remove(c *conn) {
	s.mu.Lock()
	if _, stayed := s.conns[c]; !stayed {
		s.leaving--
	}
	delete(s.conns, c)
	s.pool.Leave()
	if s.draining && len(s.conns) == 0 {
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
	closed := s.closed
	s.mu.Unlock()
	if c.reason != "" && !closed {
		c.logEvent(c.ending, c.reason)
	}
}

// list returns the open connections.
func (s *Server) list() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// lifetime is after how long a new connection is drained, or 0.
func (s *Server) lifetime() time.Duration {
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
	if first && len(s.conns) == 0 {
		close(s.empty)
	}
	s.mu.Unlock()
	for _, c := range s.list() {
		c.shutdown()
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
	s.mu.Unlock()
	s.tasks.close()
	s.stop()
	s.workers.queue.close()
	for _, c := range s.list() {
		c.mu.Lock()
		c.close("")
		c.mu.Unlock()
	}
	select {
	case <-s.tasks.ended():
		return nil
	case <-time.After(s.conf.CloseTimeout):
		return errors.New("unary: a handler does not return")
	}
}

// Stats returns the server's counts.
func (s *Server) Stats() Stats {
	stats := s.counters.stats()
	stats.Buffered, stats.Memory = s.requestBytes.Load(), s.pool.Used()
	s.mu.Lock()
	defer s.mu.Unlock()
	stats.Connections = len(s.conns)
	return stats
}
