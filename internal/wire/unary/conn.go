package unary

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate-rls/headgate/internal/wire/handshake"
)

// A conn is one connection. One goroutine, the read loop, owns it; workers that
// bring answers and the server's timeouts come in under its mutex.
//
// Its parts are layers: the reader takes frames, the requests among them become
// calls, answers go to the writer. Each part knows those below it only.
type conn struct {
	link
	w        writer
	streams  streams
	answers  answers
	requests requests
	drain    drain
	reader   reader

	workers *workers
	line    line // jobs that wait, guarded by the queue's mutex

	// Of the read loop alone: a batch of one handler.
	batch     []*stream // those that are not answered nor with the workers; others are nil
	calls     []*Call
	toServe   []*stream
	discarded int // bytes read after our side was closed

	reading   atomic.Bool // the read loop waits for the client
	made      time.Time
	lifetime  time.Duration // after which the connection is drained, or 0
	lastRead  time.Time
	lastCall  time.Time
	pingAt    time.Time // when a keepalive ping was sent that has no answer, or zero
	trimming  bool      // the read loop is woken to drop its buffers
	untrimmed bool      // there may be buffers to drop
}

func newConn(s *shared, w *workers, nc net.Conn, lifetime time.Duration) *conn {
	now := time.Now()
	c := &conn{
		link:    link{shared: s, nc: nc, now: now},
		workers: w, made: now, lifetime: lifetime, lastRead: now, lastCall: now,
	}
	c.w.init(&c.link, &c.answers)
	c.streams.init(&c.link, &c.w)
	c.answers.init(&c.streams)
	c.requests.init(&c.streams)
	c.drain.link, c.drain.w = &c.link, &c.w
	c.reader.w, c.reader.streams, c.reader.requests = &c.w, &c.streams, &c.requests
	c.reader.answers, c.reader.drain = &c.answers, &c.drain
	c.reader.init(&c.link)
	return c
}

// serve is the read loop.
func (c *conn) serve() {
	defer c.exit()
	if !c.handshake() {
		return
	}
	for {
		c.reading.Store(true)
		n, err := c.reader.in.fill(c.nc, !c.pool.Short())
		c.reading.Store(false)
		if n > 0 && !c.step(n) {
			return
		}
		if err != nil && !c.trimmed(err) {
			return
		}
	}
}

// handshake does that of TLS, where there is one. A timeout bounds it.
func (c *conn) handshake() bool {
	tc, ok := c.nc.(*tls.Conn)
	if !ok {
		return true
	}
	err := c.shakeHands(tc)
	if err == nil && tc.ConnectionState().NegotiatedProtocol != "h2" {
		err = errors.New("the client does not offer the protocol h2")
	}
	if err == nil {
		if identify := c.conf.Identify; identify != nil {
			state := tc.ConnectionState()
			c.peer = identify(&state)
		}
		return true
	}
	c.mu.Lock()
	if c.state != stateClosed { // else it is us who gave up, and said why
		c.conf.Failures.Failed("unary", c.nc.RemoteAddr(), err)
	}
	c.close("TLS handshake: " + err.Error())
	c.mu.Unlock()
	return false
}

// shakeHands does the handshake itself, within its bounds.
func (c *conn) shakeHands(tc *tls.Conn) error {
	if bound, ok := tc.NetConn().(*handshake.Conn); ok {
		defer bound.Done()
	}
	return tc.HandshakeContext(c.ctx)
}

// step handles n bytes that have arrived: it takes the frames, has the calls
// answered, and sends the answers. It reports whether to read on.
func (c *conn) step(n int) bool {
	c.handle(n)
	return c.w.flush(true)
}

// handle is step without the sending.
func (c *conn) handle(n int) {
	if n > largeRead {
		place := c.floods.enter()
		defer c.floods.leave(place)
	}
	c.mu.Lock()
	locked := true // for a panic to leave nobody waiting
	defer func() {
		if locked {
			c.mu.Unlock()
		}
	}()
	c.now = time.Now()
	c.lastRead, c.pingAt = c.now, time.Time{}
	if c.state >= stateClosing {
		c.discard(n)
	} else {
		c.take()
	}
	for c.nextBatch() {
		more := len(c.requests.ready) > 0
		c.mu.Unlock()
		locked = false
		c.dispatch(c.batch[0].h)
		if more {
			runtime.Gosched() // a client that asks for much lets others go first
		}
		c.mu.Lock()
		locked = true
	}
	c.streams.count()
}

// take takes the frames that have arrived.
func (c *conn) take() {
	c.reader.take()
	if c.state >= stateClosing {
		c.reader.in.discard()
		return
	}
	c.requests.returnWindow()
	c.answers.recheckWaiting()
	if len(c.requests.ready) > 0 {
		c.lastCall = c.now
		c.untrimmed = true
	}
	c.untrimmed = c.untrimmed || len(c.reader.in.buf) > smallReadBuffer
}

// discard drops what still arrives after our side is closed.
func (c *conn) discard(n int) {
	c.reader.in.discard()
	if c.discarded += n; c.discarded > 1<<20 {
		c.close("")
	}
}

// nextBatch collects, of the calls that are complete, some of one handler.
func (c *conn) nextBatch() bool {
	c.batch = c.requests.nextBatch(c.batch[:0])
	c.calls = c.calls[:0]
	for _, st := range c.batch {
		c.calls = append(c.calls, &st.call)
	}
	return len(c.batch) > 0
}

// dispatch answers the batch here, or hands it to workers.
func (c *conn) dispatch(h *handler) {
	rest := c.calls
	if h.Inline != nil {
		rest = c.inline(h, c.calls)
	}
	if len(rest) > 0 {
		c.submit(h, rest)
	}
	c.finish(c.batch)
}

// submit leaves calls of the batch to the workers.
func (c *conn) submit(h *handler, calls []*Call) {
	for _, call := range calls {
		call.later = true
	}
	c.toServe = c.toServe[:0]
	here := c.batch[:0]
	for _, st := range c.batch {
		if st.call.later {
			st.call.later = false
			c.toServe = append(c.toServe, st)
		} else {
			here = append(here, st)
		}
	}
	clear(c.batch[len(here):])
	c.batch = here
	c.workers.submit(c, &c.line, h, c.toServe)
}

// finish answers calls that their handler is done with. It takes each out of the
// list, so that after a panic the list has those that are not answered.
func (c *conn) finish(done []*stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, st := range done {
		done[i] = nil
		c.answers.answer(st)
	}
	c.answers.recheckWaiting()
	c.streams.count()
}

// idleAfter is how long a connection that has made calls keeps its place when others need it.
const idleAfter = time.Second

// lastUsed returns when the connection made its latest call, and whether it is idle. One that never made a call counts
// as idle, and as used a day before it was made.
func (c *conn) lastUsed(now time.Time) (at time.Time, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == stateClosed || !c.streams.idle():
		return now, false
	case c.lastCall.Equal(c.made):
		return c.made.AddDate(0, 0, -1), true
	}
	return c.lastCall, now.Sub(c.lastCall) > idleAfter
}

func (c *conn) client() net.Addr { return c.nc.RemoteAddr() }

// finishServed answers calls, for a goroutine that is not the read loop.
func (c *conn) finishServed(done []*stream) {
	c.mu.Lock()
	c.now = time.Now()
	c.mu.Unlock()
	c.finish(done)
	c.w.flushLater()
}

// trimmed reports whether err is only the sign to drop buffers, and does so.
func (c *conn) trimmed(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(err, os.ErrDeadlineExceeded) || !c.trimming || c.state == stateClosed {
		if c.state < stateClosing && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			c.reason = "read: " + err.Error() // else the client just left
		}
		return false
	}
	c.trimming = false
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	c.reader.trim()
	if c.streams.active == 0 {
		c.w.trim()
		c.streams.open = make(map[uint32]*stream)
		c.requests.ready, c.answers.waiting = nil, nil
		c.batch, c.calls, c.toServe = nil, nil, nil
		c.untrimmed = c.w.writing
	}
	c.streams.count()
	return true
}

// exit ends the read loop. Workers may still have calls of the connection.
func (c *conn) exit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close("")
	c.streams.closeAll()
	c.answers.closeAll()
	c.requests.closeAll()
	for _, st := range c.batch {
		if st != nil { // left by a panic
			st.handed = false
			c.streams.abandon(st)
		}
	}
	c.streams.count()
}
