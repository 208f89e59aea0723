package server

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/memory"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// A boundListener bounds the connections that grpc-go serves, in number and in the bytes that they keep. Above the
// number an idle connection makes room, or the new one is closed at once.
type boundListener struct {
	net.Listener
	most int
	pool *memory.Pool

	refused, displaced metrics.Counter
	relieved           atomic.Int64 // when memory was last taken back, in Unix nanoseconds

	mu   sync.Mutex
	open map[*boundConn]struct{}
}

func newBoundListener(l net.Listener, most int, pool *memory.Pool) *boundListener {
	return &boundListener{Listener: l, most: most, pool: pool, open: map[*boundConn]struct{}{}}
}

// A boundConn is one of its connections.
type boundConn struct {
	net.Conn
	l      *boundListener
	closed func()

	used    atomic.Int64 // when it last made a call, in Unix nanoseconds; 0 if never
	account memory.Account
}

// Accept returns the next connection for which there is room.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &boundConn{Conn: nc, l: l}
		c.account.Pool = l.pool
		c.closed = sync.OnceFunc(func() { l.remove(c) })
		if l.add(c) {
			return c, nil
		}
		l.refused.Inc()
		_ = nc.Close() // the client tries again
	}
}

// connIdle is how long a connection that has made calls keeps its place when others need it, and connSample how many
// connections are looked at for one that has no such claim.
const (
	connIdle   = time.Second
	connSample = 16
)

func (l *boundListener) add(c *boundConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.most {
		least := l.leastUsed(time.Now())
		if least == nil {
			return false
		}
		l.displaced.Inc()
		delete(l.open, least)
		_ = least.Conn.Close() // grpc-go sees it, and calls Close
	}
	l.open[c] = struct{}{}
	l.pool.Join()
	return true
}

// leastUsed returns, of some connections, the idle one that is used least, or nil.
func (l *boundListener) leastUsed(now time.Time) (least *boundConn) {
	seen := 0
	for c := range l.open {
		used := c.used.Load()
		if now.UnixNano()-used > int64(connIdle) && (least == nil || used < least.used.Load()) {
			least = c
		}
		if seen++; seen == connSample {
			break
		}
	}
	return least
}

func (l *boundListener) remove(c *boundConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	l.pool.Leave()
}

// relieveEvery is how often memory is taken back at most.
const relieveEvery = 100 * time.Millisecond

// relieve closes the connections that keep more than their share, if memory is short.
func (l *boundListener) relieve() {
	now, last := time.Now().UnixNano(), l.relieved.Load()
	early := now >= last && now-last < int64(relieveEvery) // a clock may step back
	if !l.pool.Short() || early || !l.relieved.CompareAndSwap(last, now) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.account.Counted() > l.pool.FairShare() {
			l.displaced.Inc()
			_ = c.Conn.Close() // grpc-go sees it, and calls Close
		}
	}
}

// Close implements net.Conn.
func (c *boundConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// RemoteAddr is how calls find their connection.
func (c *boundConn) RemoteAddr() net.Addr { return boundAddr{c.Conn.RemoteAddr(), c} }

type boundAddr struct {
	net.Addr
	c *boundConn
}

// boundConnOf returns the connection of an address, or nil.
func boundConnOf(a net.Addr) *boundConn {
	for {
		if bound, ok := a.(boundAddr); ok {
			return bound.c
		}
		outer, ok := a.(interface{ Under() net.Addr })
		if !ok {
			return nil
		}
		a = outer.Under()
	}
}

// What a stream and a frame of grpc-go cost beside the bytes of its requests, in bytes.
const (
	grpcStream = 8 << 10
	grpcFrame  = 128
)

var errNoMemory = errors.New("the connection keeps too many bytes of requests while memory is short")

// A meteredConn counts what grpc-go keeps of a connection's requests, by the frames that pass. A connection that asks
// for more than there is for it is closed.
type meteredConn struct {
	net.Conn
	of      *boundConn
	in, out frames

	mu   sync.Mutex
	open map[uint32]int // bytes of each call
	kept int            // of all
	gone bool           // it is closed: nothing counts any more
}

func newMeteredConn(nc net.Conn, of *boundConn) *meteredConn {
	return &meteredConn{Conn: nc, of: of, in: frames{skip: len(clientPreface)}, open: map[uint32]int{}}
}

const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Read implements net.Conn.
func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	c.mu.Lock()
	c.in.scan(p[:n], c.arrived)
	granted := c.of.account.Grants(c.kept)
	c.count()
	c.mu.Unlock()
	if c.of.l.pool.Short() {
		c.of.l.relieve()
	}
	if !granted {
		c.of.l.displaced.Inc()
		return 0, errNoMemory
	}
	return n, err
}

// Write implements net.Conn.
func (c *meteredConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.out.scan(p, c.sent)
	c.count()
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// count reports what the connection keeps.
func (c *meteredConn) count() {
	if c.gone {
		c.kept = 0
	}
	c.of.account.Set(c.kept)
}

// Close implements net.Conn.
func (c *meteredConn) Close() error {
	c.mu.Lock()
	c.gone = true
	c.count()
	c.mu.Unlock()
	return c.Conn.Close()
}

// Types and flags of frames.
const (
	frameData, frameHeaders, frameReset, frameContinuation = 0, 1, 3, 9
	flagEndStream                                          = 1
)

func (c *meteredConn) arrived(kind, _ byte, id uint32, size int) {
	kept, known := c.open[id]
	switch {
	case kind == frameReset:
		c.drop(id)
		return
	case kind == frameHeaders && !known:
		kept = grpcStream + 2*size
	case kind == frameHeaders || kind == frameContinuation:
		kept += 2 * size
	case kind == frameData && known:
		kept += size + grpcFrame
	default:
		return
	}
	c.kept += kept - c.open[id]
	c.open[id] = kept
}

func (c *meteredConn) sent(kind, flags byte, id uint32, _ int) {
	if kind == frameReset || (kind == frameHeaders || kind == frameData) && flags&flagEndStream != 0 {
		c.drop(id)
	}
}

func (c *meteredConn) drop(id uint32) {
	c.kept -= c.open[id]
	delete(c.open, id)
}

// frames finds the beginnings of frames in what passes.
type frames struct {
	skip int // bytes until the next frame begins
	head [9]byte
	have int // of head
}

// scan calls each with the type, the flags, the stream and the size of every frame whose head ends in p.
func (f *frames) scan(p []byte, each func(kind, flags byte, id uint32, size int)) {
	for len(p) > 0 {
		if n := min(f.skip, len(p)); n > 0 {
			f.skip -= n
			p = p[n:]
			continue
		}
		n := copy(f.head[f.have:], p)
		p = p[n:]
		if f.have += n; f.have < len(f.head) {
			return
		}
		f.have = 0
		h := &f.head
		f.skip = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		each(h[3], h[4], (uint32(h[5])<<24|uint32(h[6])<<16|uint32(h[7])<<8|uint32(h[8]))&(1<<31-1), f.skip)
	}
}
