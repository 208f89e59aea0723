package handshake

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	// free is how many bytes a handshake may always read. Those with long chains of
	// certificates need half of it.
	free = 16 << 10
)

var errTooLarge = errors.New("the TLS handshake is large while others keep too much memory")

// Bounds are shared by the handshakes of a server, on any number of listeners.
type Bounds struct {
	turns chan struct{}
	most  int64
	used  atomic.Int64 // bytes beyond what is free
}

// New returns bounds by which half of the cores, and one at least, compute handshakes. Beyond what each may always
// read, all handshakes together may read shared bytes.
func New(shared int64) *Bounds { return newBounds(max(1, runtime.GOMAXPROCS(0)/2), shared) }

func newBounds(turns int, most int64) *Bounds {
	return &Bounds{turns: make(chan struct{}, turns), most: most}
}

// A Conn is the connection below a TLS handshake. Between two reads or writes, which is when
// TLS computes, it has a turn.
type Conn struct {
	net.Conn
	bounds *Bounds
	gone   chan struct{} // closed with the connection
	close  func() error

	// Of the goroutine that does the handshake; afterwards done does not change.
	done   bool
	turn   bool
	read   int
	shared int64
}

// Conn returns the connection on which a handshake takes place. The caller calls
// Done after the handshake.
func (b *Bounds) Conn(nc net.Conn) *Conn {
	c := &Conn{Conn: nc, bounds: b, gone: make(chan struct{})}
	c.close = sync.OnceValue(func() error {
		close(c.gone)
		return nc.Close()
	})
	return c
}

// Done ends the handshake, whether it succeeded or not. From then on the connection is what
// it was before.
func (c *Conn) Done() {
	c.done = true
	c.giveBack()
	c.bounds.used.Add(-c.shared)
	c.shared = 0
}

// Read implements [net.Conn]. It waits for a turn after what was read.
func (c *Conn) Read(b []byte) (int, error) {
	if c.done {
		return c.Conn.Read(b)
	}
	c.giveBack()
	n, err := c.Conn.Read(b)
	if err != nil {
		return n, err
	}
	if c.read += n; c.read > free && !c.keep(int64(min(n, c.read-free))) {
		return 0, errTooLarge
	}
	if !c.take() {
		return 0, net.ErrClosed
	}
	return n, nil
}

// Write implements [net.Conn].
func (c *Conn) Write(b []byte) (int, error) {
	if c.done {
		return c.Conn.Write(b)
	}
	c.giveBack() // the client may keep a write waiting
	n, err := c.Conn.Write(b)
	if err == nil && !c.take() {
		err = net.ErrClosed
	}
	return n, err
}

// Close implements [net.Conn]. It ends the wait for a turn.
func (c *Conn) Close() error { return c.close() }

// keep accounts for n bytes that all handshakes share, and reports whether they may be kept.
func (c *Conn) keep(n int64) bool {
	c.shared += n
	return c.bounds.used.Add(n) <= c.bounds.most
}

// take waits for a turn and reports whether it got one before the connection was closed.
func (c *Conn) take() bool {
	select {
	case <-c.gone: // no need to compute
		return false
	default:
	}
	select {
	case c.bounds.turns <- struct{}{}:
		c.turn = true
		return true
	default:
	}
	select {
	case c.bounds.turns <- struct{}{}:
		c.turn = true
		runtime.Gosched() // who gave the turn back made us run before all others
	case <-c.gone:
	}
	return c.turn
}

// giveBack gives the turn to the next.
func (c *Conn) giveBack() {
	if c.turn {
		c.turn = false
		<-c.bounds.turns
	}
}
