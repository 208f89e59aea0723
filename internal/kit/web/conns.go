package web

import (
	"container/list"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// conns bounds the connections of a server. When there are too many, the one closes whose latest
// request, or the end of it, is the longest ago. So connections that wait make room for those that
// are used, and no number of them keeps others out, such as health checks.
type conns struct {
	most  int
	stats *Stats

	mu   sync.Mutex
	list list.List // of net.Conn, by when they changed; the latest last
	at   map[net.Conn]*list.Element
}

func newConns(most int, stats *Stats) *conns {
	return &conns{most: most, stats: stats, at: map[net.Conn]*list.Element{}}
}

// changed is the server's ConnState.
func (c *conns) changed(nc net.Conn, state http.ConnState) {
	c.stats.note(nc, state)
	if oldest := c.note(nc, state); oldest != nil {
		c.stats.Displaced.Inc()
		closeAtOnce(oldest)
	}
}

// note records the new state of a connection, and returns the one that has to close, nil if none has.
func (c *conns) note(nc net.Conn, state http.ConnState) (oldest net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch at := c.at[nc]; {
	case state == http.StateNew:
		c.at[nc] = c.list.PushBack(nc)
	case at == nil: // it is closed for others
	case state == http.StateClosed || state == http.StateHijacked:
		c.drop(at)
	default:
		c.list.MoveToBack(at)
	}
	if c.list.Len() <= c.most {
		return nil
	}
	return c.drop(c.list.Front())
}

func (c *conns) drop(at *list.Element) net.Conn {
	nc := c.list.Remove(at).(net.Conn)
	delete(c.at, nc)
	return nc
}

// closeAtOnce closes a connection without TLS's farewell, which may have to wait for the client.
func closeAtOnce(nc net.Conn) {
	if wrapped, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = wrapped.NetConn()
	}
	_ = nc.Close() // nothing can be done about it
}

// Stats count the connections of a server. They come from a [Stats.Listener].
type Stats struct {
	Open                          atomic.Int64
	Accepted, Displaced, Timeouts metrics.Counter
}

// Listener returns a listener whose connections are counted. It belongs below TLS.
func (s *Stats) Listener(l net.Listener) net.Listener { return countedListener{l, s} }

type countedListener struct {
	net.Listener
	stats *Stats
}

// Accept implements [net.Listener].
func (l countedListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: nc, stats: l.stats}, nil
}

// A countedConn sees that its client is too slow: a deadline passes in the middle of a request or an answer.
type countedConn struct {
	net.Conn
	stats *Stats
	quiet atomic.Bool // no byte has come since the latest request ended
	woken atomic.Bool // the deadline of reads only ends a read, or its end was counted
}

// Read implements [net.Conn].
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.quiet.Store(false)
	}
	if !c.quiet.Load() && !c.woken.Load() {
		c.seen(err)
	}
	return n, err
}

// Write implements [net.Conn].
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.seen(err)
	return n, err
}

func (c *countedConn) seen(err error) {
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		c.woken.Store(true)
		c.stats.Timeouts.Inc()
	}
}

// SetReadDeadline implements [net.Conn]. A server ends a read by a deadline that has passed.
func (c *countedConn) SetReadDeadline(t time.Time) error {
	c.woken.Store(!t.IsZero() && t.Before(time.Now()))
	return c.Conn.SetReadDeadline(t)
}

// CloseWrite is for the server to end its side first.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// note counts connections as their states change.
func (s *Stats) note(nc net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.Accepted.Inc()
		s.Open.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.Open.Add(-1)
	case http.StateIdle:
		if below, ok := nc.(interface{ NetConn() net.Conn }); ok {
			nc = below.NetConn()
		}
		if c, ok := nc.(*countedConn); ok {
			c.quiet.Store(true)
		}
	}
}
