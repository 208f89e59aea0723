package web

import (
	"container/list"
	"net"
	"net/http"
	"sync"
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

// note notes what becomes of a connection, and returns the one that has to close.
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
