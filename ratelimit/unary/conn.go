package unary

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A connState is where a connection is on its way. It only goes up.
type connState uint8

const (
	stateOpen      connState = iota
	stateLeaving             // a first GOAWAY is sent: calls on their way are still taken
	stateLeft                // the last GOAWAY is sent: only the calls that we have are answered
	stateClosing             // what is queued is sent, nothing more is taken
	stateLingering           // our side is closed; the client has a moment to close its own
	stateDead                // the socket is closed
)

// A conn is one connection. One goroutine, the read loop, owns it; workers
// that bring answers and the server's watch come in under mu, which nobody
// holds while it waits for anything.
type conn struct {
	s   *Server
	nc  net.Conn
	who string // the client, by Config.Identify

	// Of the read loop alone.
	in      inbox
	fr      *http2.Framer
	hdec    *hpack.Decoder
	req     request
	calls   []*Call
	batch   []*stream
	later   []*stream
	reading atomic.Bool // the read loop waits for the client

	mu       sync.Mutex
	state    connState
	why      string    // what ended the connection, or empty
	wrote    sync.Cond // told when a write ends, and at the end
	now      time.Time // of the step that is under way
	opened   bool      // a send window has grown
	greeted  bool      // the client's preface is here
	settled  bool      // its SETTINGS too
	trimming bool      // the read loop is woken to give memory back
	fat      bool      // there is memory to give back

	// Requests.
	streams      map[uint32]*stream
	ready        []*stream    // complete, for the handlers
	active       int          // streams whose memory is in use
	held         int          // bytes of requests in memory that count against MaxHeld
	heldReported int          // of which the server knows
	counted      atomic.Int64 // bytes of memory of which the server knows
	inboxSize    int          // bytes of the read buffer
	lastID       uint32
	goAwayID     uint32 // the last stream that is served in stateLeft
	closed       closedRing
	receipts     receipts
	partial      headerBlock // a header block that goes on in CONTINUATION
	fragments    []byte
	recvWindow   int

	// Answers.
	out, spare   []byte // queued; the other buffer while one is written
	writing      bool
	inWrite      int // bytes of the buffer that is being written
	writeSince   time.Time
	enc          encoder
	frameSize    int   // bytes of the largest DATA that we send
	sendWindow   int64 // bytes that the client lets us send; may be negative
	peerWindow   int64 // the same, for a new stream
	blocked      []*stream
	pendingBytes int

	// Time and patience.
	made             time.Time // when the connection was made
	age              time.Duration
	lastRead         time.Time
	lastCall         time.Time
	partialSince     time.Time // since when there is a part of a frame or header block
	streamsAt        time.Time // when streams must be looked at, or zero
	pingAt           time.Time // when a keepalive ping was sent that has no answer, or zero
	drainAt          time.Time // when the drain began
	lingerUntil      time.Time
	lingered         int // bytes read in stateLingering
	patience         budget
	settingsPatience budget

	line line // jobs that wait, guarded by the queue's mutex

	// Counts of this step, for the server's.
	answered, failed, cancelled, refused int
}

func newConn(s *Server, nc net.Conn, now time.Time) *conn {
	c := &conn{
		s: s, nc: nc, now: now, made: now, lastRead: now, lastCall: now,
		patience:         newBudget(patience, patiencePerSec, now),
		settingsPatience: newBudget(settingsPatience, settingsPatiencePerSec, now),
		recvWindow:       connWindow,
		frameSize:        minFrame, sendWindow: defaultWindow, peerWindow: defaultWindow,
		streams: make(map[uint32]*stream), age: s.connectionAge(),
	}
	c.wrote.L = &c.mu
	c.enc.size = headerTableSize
	c.in.buf = make([]byte, inboxSmall)
	c.fr = http2.NewFramer(nil, &c.in)
	c.fr.SetMaxReadFrameSize(minFrame)
	c.req.limit, c.req.find = uint32(s.conf.MaxHeaderListSize), s.find
	c.hdec = hpack.NewDecoder(headerTableSize, c.req.field)
	c.hdec.SetMaxStringLength(2 * s.conf.MaxHeaderListSize)
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
		n, err := c.in.fill(c.nc)
		c.reading.Store(false)
		if n > 0 && !c.step(n) {
			return
		}
		if err != nil && !c.trimmed(err) {
			return
		}
	}
}

// handshake does that of TLS, where there is one. The watch bounds its time.
func (c *conn) handshake() bool {
	tc, ok := c.nc.(*tls.Conn)
	if !ok {
		return true
	}
	err := tc.HandshakeContext(c.s.ctx)
	if err == nil && tc.ConnectionState().NegotiatedProtocol != "h2" {
		err = errors.New("the client does not offer the protocol h2")
	}
	if err == nil {
		if identify := c.s.conf.Identify; identify != nil {
			state := tc.ConnectionState()
			c.who = identify(&state)
		}
		return true
	}
	c.mu.Lock()
	c.kill("TLS handshake: " + err.Error())
	c.mu.Unlock()
	return false
}

// step handles n bytes that have arrived: it takes the frames, has the calls
// answered, and sends what came of it. It tells whether to read on.
func (c *conn) step(n int) bool {
	c.mu.Lock()
	locked := true // for a panic to leave nobody waiting
	defer func() {
		if locked {
			c.mu.Unlock()
		}
	}()
	c.now = time.Now()
	c.lastRead, c.pingAt = c.now, time.Time{}
	c.inboxSize = len(c.in.buf)
	if c.state >= stateClosing {
		c.linger(n)
	} else {
		c.take()
	}
	for c.nextBatch() {
		h, more := c.batch[0].h, len(c.ready) > 0
		c.mu.Unlock()
		locked = false
		c.dispatch(h)
		if more {
			runtime.Gosched() // a client that asks for much lets others go first
		}
		c.mu.Lock()
		locked = true
	}
	c.report()
	c.mu.Unlock()
	locked = false
	return c.flush(true)
}

// take handles the frames that have arrived.
func (c *conn) take() {
	before := c.in.r
	c.frames()
	switch rest := len(c.in.bytes()); {
	case rest == 0 && c.partial.id == 0:
		c.partialSince = time.Time{}
	case c.partialSince.IsZero() || rest > 0 && c.in.r > before && c.partial.id == 0:
		c.partialSince = c.now
	}
	if c.state >= stateClosing {
		c.in.discard()
		return
	}
	c.returnWindow()
	if c.opened {
		c.pump()
	}
	if len(c.ready) > 0 {
		c.lastCall = c.now
	}
	c.fat = c.fat || len(c.ready) > 0 || len(c.in.buf) > inboxSmall
}

// linger throws away what still comes after our side is closed.
func (c *conn) linger(n int) {
	c.in.discard()
	if c.lingered += n; c.lingered > 1<<20 {
		c.kill("")
	}
}

// batchBytes is the size of the messages, in bytes, of which a batch takes no
// further ones: about what one read brings, unless it is compressed. Handlers
// may need many times as much memory.
const batchBytes = 64 << 10

// nextBatch collects, of the calls that are complete, those of one handler.
func (c *conn) nextBatch() bool {
	c.batch, c.calls = c.batch[:0], c.calls[:0]
	bytes := 0
	rest := c.ready[:0]
	for _, st := range c.ready {
		switch {
		case st.gone || c.state == stateDead: // taken back since it was complete
			st.queued = false
			c.s.abandoned(st)
			c.abandon(st)
		case len(c.batch) > 0 && (c.batch[0].h != st.h || bytes >= batchBytes):
			rest = append(rest, st)
		case !st.call.Deadline.IsZero() && !c.now.Before(st.call.Deadline):
			st.queued = false
			c.s.abandoned(st)
			c.refuse(st, errDeadline)
		default:
			st.queued, st.handed = false, true
			bytes += len(st.call.Message)
			c.batch = append(c.batch, st)
			c.calls = append(c.calls, &st.call)
		}
	}
	c.ready = rest
	return len(c.batch) > 0
}

var errDeadline = &Status{DeadlineExceeded, "the deadline passed before the call was handled"}

// dispatch has a batch answered: here, or by a worker.
func (c *conn) dispatch(h *handler) {
	rest := c.calls
	if h.Inline != nil {
		rest = c.s.inline(c.s.ctx, h, c.calls)
	}
	if len(rest) == 0 {
		c.finish(c.batch)
		return
	}
	for _, call := range rest {
		call.later = true
	}
	here := c.batch[:0]
	c.later = c.later[:0]
	for _, st := range c.batch {
		if st.call.later {
			st.call.later = false
			c.later = append(c.later, st)
		} else {
			here = append(here, st)
		}
	}
	c.submit(h, c.later)
	c.finish(here)
}

// finish answers calls that their handler is done with.
func (c *conn) finish(done []*stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.answered
	for _, st := range done {
		c.answer(st)
	}
	c.credit(c.answered - before)
	if c.opened {
		c.pump()
	}
	c.report()
}

// flush writes what is queued, unless another goroutine is at it. The read
// loop, with wait, does not get far ahead of a client that does not read: it
// waits until there is room or the write has failed, which the watch sees to.
// It tells whether the connection is still alive.
func (c *conn) flush(wait bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for wait && c.writing && len(c.out) > writeAhead && c.state != stateDead {
		c.wrote.Wait()
	}
	if !c.writing {
		c.writing = true
		c.write()
		c.writing = false
		c.wrote.Broadcast()
	}
	return c.state != stateDead
}

// write writes until nothing is queued, then closes if it is time to.
func (c *conn) write() {
	for c.state < stateLingering {
		if len(c.out) > 0 {
			c.writeQueued()
			if len(c.blocked) > 0 { // perhaps only because too much was queued
				c.pump()
			}
			continue
		}
		if c.state == stateLeft && c.active == 0 {
			c.state = stateClosing
		}
		if c.state != stateClosing {
			return
		}
		c.state = stateLingering
		c.lingerUntil = time.Now().Add(linger)
		c.writeSince = time.Now()
		c.mu.Unlock()
		closeWrite(c.nc)
		c.mu.Lock()
	}
}

// writeQueued writes what is queued now. It lets go of mu while it writes.
func (c *conn) writeQueued() {
	buf := c.out
	c.out = c.spare[:0]
	c.spare = nil
	c.inWrite = cap(buf)
	for rest := buf; len(rest) > 0 && c.state != stateDead; {
		chunk := rest[:min(len(rest), writeChunk)]
		rest = rest[len(chunk):]
		c.writeSince = time.Now()
		c.mu.Unlock()
		_, err := c.nc.Write(chunk)
		c.mu.Lock()
		c.wrote.Broadcast()
		if err != nil {
			c.kill("write: " + err.Error())
		}
	}
	c.inWrite = 0
	if cap(buf) <= inboxLarge {
		c.spare = buf[:0]
	}
}

// flushSoon writes what is queued from a goroutine of its own, for those who
// must not wait for a client.
func (c *conn) flushSoon() {
	c.mu.Lock()
	start := !c.writing && c.state != stateDead && (len(c.out) > 0 || c.state == stateLeft || c.state == stateClosing)
	c.mu.Unlock()
	if start && c.s.hold() {
		c.s.conf.Panics.Go("flush", func() {
			defer c.s.running.Done()
			c.flush(false)
		})
	}
}

func closeWrite(nc net.Conn) {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the watch closes the rest soon
	}
}

// fail ends the connection with GOAWAY for a fault of the client's.
func (c *conn) fail(code http2.ErrCode, reason string) {
	if c.state >= stateClosing {
		return
	}
	c.state, c.why = stateClosing, reason
	c.s.stats.protocolErrors.Add(1)
	c.out = appendGoAway(c.out, c.lastID, code, reason)
}

// kill closes the socket at once. Who waits for it wakes up.
func (c *conn) kill(reason string) {
	if c.state == stateDead {
		return
	}
	c.state = stateDead
	if c.why == "" {
		c.why = reason
	}
	c.wrote.Broadcast()
	closeNow(c.nc)
}

// closeNow closes without a farewell, which may have to wait for the client.
func closeNow(nc net.Conn) {
	if wrapped, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = wrapped.NetConn()
	}
	_ = nc.Close() // nothing can be done about it
}

// trimmed tells whether err is only the watch's sign to give memory back, and
// does so.
func (c *conn) trimmed(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(err, os.ErrDeadlineExceeded) || !c.trimming || c.state == stateDead {
		if c.state < stateClosing && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			c.why = "read: " + err.Error() // else the client just left
		}
		return false
	}
	c.trimming = false
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	c.in.trim()
	c.inboxSize = len(c.in.buf)
	if c.active == 0 && !c.writing {
		c.out, c.spare, c.fragments = nil, nil, nil
		c.calls, c.batch, c.later, c.ready, c.blocked = nil, nil, nil, nil, nil
		c.streams = make(map[uint32]*stream)
		c.fat = false
	}
	c.count()
	return true
}

// report adds what has happened to the server's counts.
func (c *conn) report() {
	add := func(total *atomic.Uint64, n *int) {
		if *n > 0 {
			total.Add(uint64(*n))
			*n = 0
		}
	}
	add(&c.s.stats.answered, &c.answered)
	add(&c.s.stats.failed, &c.failed)
	add(&c.s.stats.cancelled, &c.cancelled)
	add(&c.s.stats.refusedCalls, &c.refused)
	c.count()
}

// exit ends the read loop. Handlers may still have calls of the connection.
func (c *conn) exit() {
	c.mu.Lock()
	c.kill("")
	for _, st := range c.streams {
		c.cancelled++
		c.drop(st, false)
	}
	for _, st := range c.blocked {
		c.release(st)
	}
	c.blocked = nil
	c.receipts = receipts{}
	c.report()
	why := c.why
	c.mu.Unlock()
	c.s.remove(c, why)
}

// inline calls the handler, and turns a panic into a failure of the calls.
func (s *Server) inline(ctx context.Context, h *handler, calls []*Call) (rest []*Call) {
	all := calls
	defer func() {
		if p := recover(); p != nil {
			s.panicked(h, p)
			failAll(all)
			rest = nil
		}
	}()
	return h.Inline(ctx, calls)
}
