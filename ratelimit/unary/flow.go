package unary

import (
	"time"

	"golang.org/x/net/http2"
)

// Flow control, both ways. All of it runs under the connection's mutex.

const (
	defaultWindow = 65535       // bytes, for a connection and each stream
	maxWindow     = 1<<31 - 1   // bytes
	connWindow    = 1 << 20     // bytes that a client may send ahead on a connection
	connReturn    = 64 << 10    // bytes after which a connection gets window back
	streamReturn  = 16 << 10    // bytes after which a stream gets window back
	minFrame      = 16 << 10    // bytes; the frame size that everyone must take
	maxFrame      = 1<<24 - 1   // bytes; the largest that can be asked for
	maxDataFrame  = 64 << 10    // bytes; the largest DATA that we send
	maxPending    = 4 << 20     // bytes of answers that wait for window, and as many for the socket
	writeChunk    = 256 << 10   // bytes per write
	writeAhead    = 128 << 10   // bytes waiting for the socket at which we stop reading
	linger        = time.Second // how long a client may take to close after GOAWAY
)

// received accounts for n bytes of flow-controlled data on the connection.
func (c *conn) received(n int) bool {
	if n > c.recvWindow {
		c.fail(http2.ErrCodeFlowControl, "more data than the connection's window allows")
		return false
	}
	c.recvWindow -= n
	return true
}

// returnWindow gives the connection's window back for what has arrived. It
// does not matter what became of the data: none of it is kept for long, and a
// bound of its own holds what is.
func (c *conn) returnWindow() {
	if n := connWindow - c.recvWindow; n >= connReturn {
		c.out = appendWindowUpdate(c.out, 0, n)
		c.recvWindow = connWindow
	}
}

// receivedOn accounts for n bytes on a stream, and gives window back if the
// client has more to send.
func (c *conn) receivedOn(st *stream, n int, end bool) bool {
	if n > st.recvWindow {
		c.reset(st.id, http2.ErrCodeFlowControl)
		c.drop(st, true)
		return false
	}
	st.recvWindow -= n
	st.unreturned += n
	if !end && st.unreturned >= streamReturn {
		c.out = appendWindowUpdate(c.out, st.id, st.unreturned)
		st.recvWindow += st.unreturned
		st.unreturned = 0
	}
	return true
}

// windowUpdate opens a send window.
func (c *conn) windowUpdate(id uint32, increment int64) {
	c.pay(costWindowUpdate + len(c.blocked)/walkPerPoint)
	c.opened = true
	if id == 0 {
		if c.sendWindow += increment; c.sendWindow > maxWindow {
			c.fail(http2.ErrCodeFlowControl, "window above 2^31-1")
		}
		return
	}
	st := c.streams[id]
	if st == nil {
		if c.idle(id) {
			c.fail(http2.ErrCodeProtocol, "WINDOW_UPDATE on an idle stream")
		}
		return
	}
	if st.sendWindow += increment; st.sendWindow > maxWindow {
		c.reset(id, http2.ErrCodeFlowControl)
		c.drop(st, true)
	}
}

// initialWindow changes the window of all streams, as SETTINGS may.
func (c *conn) initialWindow(size int64) {
	delta := size - c.peerWindow
	c.peerWindow = size
	c.opened = true
	for _, st := range c.streams {
		if st.sendWindow += delta; st.sendWindow > maxWindow {
			c.fail(http2.ErrCodeFlowControl, "window above 2^31-1")
			return
		}
	}
}

// block keeps an answer until there is window for it.
func (c *conn) block(st *stream) {
	if c.pendingBytes+len(st.pending) > maxPending || !c.room(len(st.pending)) {
		c.reset(st.id, http2.ErrCodeEnhanceYourCalm)
		c.drop(st, true)
		return
	}
	c.forgetRequest(st)
	st.since, st.blocked = c.now, true
	c.pendingBytes += len(st.pending)
	c.blocked = append(c.blocked, st)
	c.opened = true // a part of it may fit
	c.watchStreams()
}

// pump sends of the waiting answers what the windows allow, the oldest first.
func (c *conn) pump() {
	c.opened = false
	kept := c.blocked[:0]
	for _, st := range c.blocked {
		if !st.gone && !c.sendPending(st) {
			kept = append(kept, st)
			continue
		}
		c.pendingBytes -= len(st.pending)
		st.blocked = false
		if st.gone {
			c.release(st)
			continue
		}
		c.out = c.appendTrailers(c.out, st.id)
		c.sent(st)
	}
	clear(c.blocked[len(kept):])
	c.blocked = kept
}

// sendPending sends what it can of an answer and tells whether that is all.
func (c *conn) sendPending(st *stream) bool {
	for st.sent < len(st.pending) {
		n := min(int64(len(st.pending)-st.sent), st.sendWindow, c.sendWindow, int64(c.frameSize))
		if n <= 0 || len(c.out) > maxPending {
			return false
		}
		c.out = appendFrame(c.out, http2.FrameData, 0, st.id, int(n))
		c.out = append(c.out, st.pending[st.sent:st.sent+int(n)]...)
		st.sent += int(n)
		st.sendWindow -= n
		c.sendWindow -= n
		st.since = c.now
	}
	return true
}
