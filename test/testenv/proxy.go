package testenv

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy passes TCP connections on to a server and spoils them on command. All
// methods may be called from any goroutine.
type Proxy struct {
	// Addr is where clients connect to.
	Addr string

	upstream string
	listener net.Listener
	latency  atomic.Int64 // of time.Duration
	split    atomic.Int64 // of time.Duration
	rate     atomic.Int64 // bytes per second, 0 for no bound

	accepted atomic.Int64
	up, down atomic.Int64

	mu     sync.Mutex
	open   chan struct{} // closed while data may pass
	conns  map[*proxyConn]struct{}
	closed bool
	wait   sync.WaitGroup
}

// ProxyStats counts what went through a proxy.
type ProxyStats struct {
	Accepted  int64 // connections since the start
	Open      int   // connections now
	BytesUp   int64 // to the server
	BytesDown int64 // to clients
}

// proxyConn is one client's connection and the one to the server.
type proxyConn struct {
	client, server *net.TCPConn
	gone           chan struct{}
	once           sync.Once
}

// StartProxy listens on a free port of 127.0.0.1 and passes everything on to
// upstream. The test's cleanup ends it.
func StartProxy(tb TB, upstream string) *Proxy {
	tb.Helper()
	return StartProxyOn(tb, "127.0.0.1:0", upstream)
}

// StartProxyOn is StartProxy on an address.
func StartProxyOn(tb TB, addr, upstream string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		tb.Fatalf("testenv: start a proxy: %v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), upstream: upstream, listener: l, conns: map[*proxyConn]struct{}{},
		open: make(chan struct{})}
	close(p.open)
	p.wait.Go(p.accept)
	tb.Cleanup(p.stop)
	return p
}

// SetLatency holds everything that clients send for d, so that a round trip
// takes d longer. Bytes already on their way keep their delay.
func (p *Proxy) SetLatency(d time.Duration) { p.latency.Store(int64(d)) }

// SetSplit delivers of everything that is read, in either direction, the first
// half at once and the second one d later, and what follows behind it: a peer
// sees the beginning of a command or a reply and not its end. 0 ends that.
func (p *Proxy) SetSplit(d time.Duration) { p.split.Store(int64(d)) }

// SetRate lets at most this many bytes per second pass on each connection and
// in each direction, a few at a time; 0 takes the bound away.
func (p *Proxy) SetRate(bytesPerSecond int) { p.rate.Store(int64(bytesPerSecond)) }

// Cut resets all connections there are. New ones are served.
func (p *Proxy) Cut() {
	for _, c := range p.all() {
		c.reset()
	}
}

// Freeze lets nothing through in either direction until Resume, as if packets
// were lost. Connections stay open and new ones are accepted.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default: // is frozen
	}
}

// Resume ends Freeze; what was held back is delivered.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// Stats returns the counters.
func (p *Proxy) Stats() ProxyStats {
	return ProxyStats{Accepted: p.accepted.Load(), Open: len(p.all()), BytesUp: p.up.Load(), BytesDown: p.down.Load()}
}

func (p *Proxy) all() []*proxyConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*proxyConn, 0, len(p.conns))
	for c := range p.conns {
		list = append(list, c)
	}
	return list
}

func (p *Proxy) stop() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.wait.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors, for instance
			continue
		}
		p.accepted.Add(1)
		p.wait.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	server, err := net.DialTimeout("tcp", p.upstream, 5*time.Second)
	if err != nil {
		// A client of the real address would be refused; being reset is as
		// near as a connection that exists can come to it.
		reset(client)
		return
	}
	c := &proxyConn{client: client, server: server.(*net.TCPConn), gone: make(chan struct{})}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.conns[c] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		c.reset()
		return
	}
	var both sync.WaitGroup
	const delayed, atOnce = true, false
	both.Go(func() { p.pump(c, c.server, c.client, delayed, &p.up) })
	both.Go(func() { p.pump(c, c.client, c.server, atOnce, &p.down) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.client.Close()
	_ = c.server.Close()
}

type chunk struct {
	data []byte
	due  time.Time
}

// cutUp makes of what was read the pieces that are to be delivered.
func (p *Proxy) cutUp(data []byte, due time.Time) []chunk {
	late := time.Duration(p.split.Load())
	if late == 0 || len(data) < 2 {
		return []chunk{{data, due}}
	}
	half := len(data) / 2
	return []chunk{{data[:half], due}, {data[half:], due.Add(late)}}
}

// pump copies one direction. Reading and writing are apart so that latency
// delays bytes without slowing them down.
func (p *Proxy) pump(c *proxyConn, dst, src *net.TCPConn, delayed bool, count *atomic.Int64) {
	chunks := make(chan chunk, 256)
	p.wait.Go(func() {
		defer close(chunks)
		for {
			buf := make([]byte, 16<<10)
			n, err := src.Read(buf)
			due := time.Now()
			if delayed {
				due = due.Add(time.Duration(p.latency.Load()))
			}
			if n > 0 {
				for _, ch := range p.cutUp(buf[:n], due) {
					select {
					case chunks <- ch:
					case <-c.gone:
						return
					}
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					c.reset()
				}
				return
			}
		}
	})
	for ch := range chunks {
		if !p.mayPass(c, ch.due) {
			return
		}
		if err := p.deliver(c, dst, ch.data, count); err != nil {
			c.reset()
			return
		}
	}
	// The end of the stream may not overtake a freeze either.
	if p.mayPass(c, time.Time{}) {
		_ = dst.CloseWrite()
	}
}

// deliver writes data, at the rate that holds just then.
func (p *Proxy) deliver(c *proxyConn, dst *net.TCPConn, data []byte, count *atomic.Int64) error {
	const beat = 10 * time.Millisecond
	for len(data) > 0 {
		piece := data
		if rate := p.rate.Load(); rate > 0 {
			most := max(1, int(rate*int64(beat)/int64(time.Second)))
			piece = data[:min(most, len(data))]
			if !p.mayPass(c, time.Now().Add(beat)) {
				return net.ErrClosed
			}
		}
		n, err := dst.Write(piece)
		count.Add(int64(n))
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// mayPass waits until due and until the proxy is not frozen; false means that
// the connection ended meanwhile.
func (p *Proxy) mayPass(c *proxyConn, due time.Time) bool {
	if d := time.Until(due); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.gone:
			return false
		}
	}
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	select {
	case <-open:
	case <-c.gone:
		return false
	}
	return true
}

// reset ends the connection on both sides with a TCP reset.
func (c *proxyConn) reset() {
	c.once.Do(func() {
		close(c.gone)
		reset(c.client)
		reset(c.server)
	})
}

func reset(conn *net.TCPConn) {
	// Without lingering, Close sends a reset instead of an orderly end.
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
