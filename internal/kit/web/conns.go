package web

import (
	"container/list"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// conns bounds the connections of a server. When there are too many, the one closes whose latest
// request, or the end of it, is the longest ago. So connections that wait make room for those that
// are used, and no number of them keeps others out, such as health checks. Where many come at once, each has a moment
// to be answered: the next are accepted after it.
type conns struct {
	most  int
	stats *Stats

	mu   sync.Mutex
	list list.List // of changedConn, by when they changed; the latest last
	at   map[net.Conn]*list.Element
}

// A changedConn is a connection, and when it changed.
type changedConn struct {
	net.Conn
	at time.Time
}

// leastLife is how long a connection has at least before it makes room for another.
const leastLife = 50 * time.Millisecond

func newConns(most int, stats *Stats) *conns {
	return &conns{most: most, stats: stats, at: map[net.Conn]*list.Element{}}
}

// changed is the server's ConnState.
func (c *conns) changed(nc net.Conn, state http.ConnState) {
	c.stats.note(nc, state)
	if oldest := c.note(nc, state); oldest.Conn != nil {
		time.Sleep(time.Until(oldest.at.Add(leastLife))) // nothing is accepted meanwhile
		c.stats.Displaced.Inc()
		closeAtOnce(oldest.Conn)
	}
}

// note records the new state of a connection, and returns the one that has to close, if one has.
func (c *conns) note(nc net.Conn, state http.ConnState) (oldest changedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch at := c.at[nc]; {
	case state == http.StateNew:
		c.at[nc] = c.list.PushBack(changedConn{nc, time.Now()})
	case at == nil: // it is closed for others
	case state == http.StateClosed || state == http.StateHijacked:
		c.drop(at)
	default:
		at.Value = changedConn{nc, time.Now()}
		c.list.MoveToBack(at)
	}
	if c.list.Len() <= c.most {
		return changedConn{}
	}
	return c.drop(c.list.Front())
}

func (c *conns) drop(at *list.Element) changedConn {
	dropped := c.list.Remove(at).(changedConn)
	delete(c.at, dropped.Conn)
	return dropped
}

// closeAtOnce closes a connection without TLS's farewell, which may have to wait for the client.
func closeAtOnce(nc net.Conn) {
	if wrapped, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = wrapped.NetConn()
	}
	_ = nc.Close() // nothing can be done about it
}

// Stats count the connections of a server, which come from a [Stats.Listener], and what was refused on them.
type Stats struct {
	Open                                    atomic.Int64
	Accepted, Displaced, Timeouts, NoMemory metrics.Counter

	warnings atomic.Pointer[warnings] // of the server
}

// warnings are lines about clients, at most one a second for each message.
type warnings struct {
	log   *slog.Logger
	limit background.LogLimits
}

// Why lines about clients are logged.
const (
	isFull   = "there is no room in memory"
	isUnread = "an answer is not read"
)

// warning returns the log of a line about a client, and how many such lines were suppressed before; nil: it is
// suppressed, too.
func (s *Stats) warning(why string) (log *slog.Logger, suppressed int64) {
	w := s.warnings.Load()
	if w == nil {
		return nil, 0
	}
	ok, suppressed := w.limit.Allow(why)
	if !ok {
		return nil, 0
	}
	return w.log, suppressed
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
	if sized, ok := nc.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = sized.SetWriteBuffer(sendBuffer) // else it has the system's size
	}
	return &countedConn{Conn: nc, stats: l.stats}, nil
}

// sendBuffer is how many bytes of an answer the system keeps for a client that does not read: it would keep some MiB
// for each, which count as memory of the container.
const sendBuffer = 32 << 10

// A countedConn sees that its client is too slow: a deadline passes in the middle of a request or an answer.
type countedConn struct {
	net.Conn
	stats *Stats
	quiet atomic.Bool  // no byte has come since the latest request ended
	woken atomic.Bool  // the deadline of reads only ends a read, or its end was counted
	until atomic.Int64 // the server's deadline of writes, in Unix nanoseconds; 0: none
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

// stalledAfter is how long an answer may make no progress, because its client does not read it.
const stalledAfter = 2 * time.Second

// Write implements [net.Conn].
func (c *countedConn) Write(p []byte) (n int, err error) {
	for {
		by, last := time.Now().Add(stalledAfter), false
		if until := c.until.Load(); until != 0 && until <= by.UnixNano() {
			by, last = time.Unix(0, until), true
		}
		_ = c.Conn.SetWriteDeadline(by) // if it fails, so does the write
		var some int
		some, err = c.Conn.Write(p[n:])
		n += some
		if some == 0 || last || !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if log, suppressed := c.stats.warning(isUnread); log != nil {
			log.Warn("a client does not read its answer over HTTP, and its connection is closed", "client",
				c.RemoteAddr().String(), "suppressed", suppressed)
		}
	}
	c.seen(err)
	return n, err
}

// SetWriteDeadline implements [net.Conn].
func (c *countedConn) SetWriteDeadline(t time.Time) error {
	c.until.Store(0)
	if !t.IsZero() {
		c.until.Store(t.UnixNano())
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements [net.Conn].
func (c *countedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
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
