package unary

import (
	"fmt"

	"golang.org/x/net/http2"
)

// The life of a call, from its headers to its answer. All of this runs under
// the connection's mutex.

// wholeBlock takes a whole header block: it opens a stream or ends a request.
func (c *conn) wholeBlock(block headerBlock, fragment []byte) {
	st := c.streams[block.id]
	if !c.decodeHeaders(fragment, st != nil) {
		return
	}
	switch {
	case st != nil:
		c.trailers(st, block)
	case c.leftOut(block.id):
		c.lastID = max(c.lastID, block.id)
	case block.id <= c.lastID:
		c.lateHeaders(block.id)
	default:
		c.lastID = block.id
		c.open(block)
	}
}

// decodeHeaders fills c.req. Every block must be decoded, also one of no use,
// because the client's table follows from it.
func (c *conn) decodeHeaders(fragment []byte, trailers bool) bool {
	if len(fragment) > 2*c.s.conf.MaxHeaderListSize {
		c.fail(http2.ErrCodeEnhanceYourCalm, "header block too large")
		return false
	}
	c.req.reset(trailers)
	_, err := c.hdec.Write(fragment)
	if err == nil {
		err = c.hdec.Close()
	}
	if err != nil {
		c.fail(http2.ErrCodeCompression, "header block that cannot be decompressed")
		return false
	}
	c.req.finish()
	return true
}

// trailers ends a request with trailers, of which none means anything to us.
func (c *conn) trailers(st *stream, block headerBlock) {
	switch {
	case st.ended:
		c.streamError(st.id, http2.ErrCodeStreamClosed)
	case !block.end || block.selfish || c.req.malformed != "":
		c.streamError(st.id, http2.ErrCodeProtocol)
	default:
		c.requestEnds(st)
	}
}

// lateHeaders handles headers on a stream that is closed.
func (c *conn) lateHeaders(id uint32) {
	known, cut := c.closed.find(id)
	switch {
	case cut:
		c.pay(costUseless)
	case known:
		c.fail(http2.ErrCodeStreamClosed, "HEADERS on a closed stream")
	default:
		c.fail(http2.ErrCodeProtocol, "HEADERS on a stream below the last one")
	}
}

// open begins a call, or refuses it.
func (c *conn) open(block headerBlock) {
	switch {
	case block.selfish || c.req.malformed != "":
		c.streamError(block.id, http2.ErrCodeProtocol)
		return
	case c.active >= c.s.conf.MaxConcurrentStreams:
		c.pay(costRefused)
		c.turnAway(block.id)
		return
	case !c.room(streamCost):
		c.turnAway(block.id)
		return
	}
	st := newStream(block.id, c.req.h)
	c.streams[st.id] = st
	c.active++
	st.since = c.now
	st.declared, st.received = c.req.length, 0
	st.recvWindow, st.sendWindow = defaultWindow, c.peerWindow
	st.ended = block.end // for refuse to know
	if status := c.admit(st); status != nil {
		c.refuse(st, status)
		return
	}
	if block.end {
		c.requestEnds(st)
		return
	}
	c.watchStreams()
}

// turnAway refuses a stream so that the client knows that it may try it again.
func (c *conn) turnAway(id uint32) {
	c.refused++
	c.s.trouble(tooManyCalls, 1, c.nc.RemoteAddr(), "")
	c.reset(id, http2.ErrCodeRefusedStream)
	c.closed.add(id, true)
}

// admit sees whether a call can be served. Where the request is no gRPC at
// all it leaves an HTTP answer in st.refusal, for when the request has ended.
func (c *conn) admit(st *stream) *Status {
	q := &c.req
	switch {
	case c.s.standIn != nil:
		st.h = c.s.standIn
		return nil
	case q.tooLarge:
		st.refusal = refusal{431, &Status{ResourceExhausted, fmt.Sprintf("header list larger than max (%d)", q.limit)}}
	case q.method != "POST":
		st.refusal = refusal{405, &Status{Internal, fmt.Sprintf("method %q where POST is expected", q.method)}}
	case !isGRPC(q.contentType):
		st.refusal = refusal{415, &Status{InvalidArgument, fmt.Sprintf("invalid gRPC request content-type %q", q.contentType)}}
	case q.h == nil:
		return c.unknownMethod(q.path)
	case q.encoding == "gzip":
		st.gzip = true
	case q.encoding != "" && q.encoding != "identity":
		return &Status{Unimplemented, fmt.Sprintf("grpc-encoding %q is not supported", q.encoding)}
	}
	if q.timeout != "" {
		timeout, ok := parseTimeout(q.timeout)
		if !ok {
			return &Status{Internal, fmt.Sprintf("malformed grpc-timeout %q", q.timeout)}
		}
		st.call.Deadline = c.now.Add(timeout)
	}
	st.call.Metadata, st.call.Peer = append(st.call.Metadata, q.metadata...), c.who
	n := 0
	for _, value := range q.metadata {
		n += len(value)
	}
	return c.hold(st, n)
}

func (c *conn) unknownMethod(path string) *Status {
	message := "unknown method " + path
	if hint := c.s.conf.UnknownHint; hint != "" {
		message += "; " + hint
	}
	return &Status{Unimplemented, message}
}

// requestEnds makes a call of a request that is all there.
func (c *conn) requestEnds(st *stream) {
	st.ended = true
	if st.declared >= 0 && st.declared != st.received {
		c.streamError(st.id, http2.ErrCodeProtocol)
		return
	}
	if r := st.refusal; r.http != 0 {
		c.fails(r.status)
		c.s.trouble(callFailed, 1, c.nc.RemoteAddr(), r.status.Message)
		c.out = c.appendFailure(c.out, st.id, r.http, r.status)
		c.drop(st, false)
		return
	}
	if st.h == c.s.standIn {
		st.call.Message = st.body
	} else if status := st.decode(c.s.conf.MaxMessageSize, c.s.conf.MaxHeld-c.held); status != nil {
		c.refuse(st, status)
		return
	}
	if n := len(st.plain); n > 0 {
		c.pay(max(0, n-inflation*len(st.body)) / inflatedPerPoint)
		if status := c.hold(st, n); status != nil {
			c.refuse(st, status)
			return
		}
	}
	st.queued = true
	c.ready = append(c.ready, st)
}

// fails counts a call that is answered with an error.
func (c *conn) fails(status *Status) {
	code := status.Code
	if code >= numCodes {
		code = unknown
	}
	c.failed++
	c.s.stats.failures[code].Add(1)
}

// refuse answers a call that does not reach its handler, also before its
// request has ended.
func (c *conn) refuse(st *stream, status *Status) {
	c.fails(status)
	kind := callFailed
	if status == errMemory {
		kind = tooMuchMemory
	}
	c.s.trouble(kind, 1, c.nc.RemoteAddr(), status.Message)
	c.out = c.appendFailure(c.out, st.id, 200, status)
	if !st.ended { // as HTTP says it: no fault, but do not send the rest
		c.reset(st.id, http2.ErrCodeNo)
	}
	c.drop(st, !st.ended)
}

// answer sends what the handler said, or keeps it until there is window.
func (c *conn) answer(st *stream) {
	st.handed = false
	if st.gone || c.state >= stateLingering {
		c.abandon(st)
		return
	}
	call := &st.call
	if call.Err != nil && call.Err.Code != OK {
		c.fails(call.Err)
		c.out = c.appendFailure(c.out, st.id, 200, call.Err)
		c.drop(st, false)
		return
	}
	c.answered++
	n := len(call.Reply)
	c.out = c.appendHead(c.out, st.id)
	total := messagePrefix + n
	if int64(total) > min(c.sendWindow, st.sendWindow, int64(c.frameSize)) || len(c.out) > maxPending {
		st.pending = appendMessagePrefix(st.pending[:0], n)
		st.pending = append(st.pending, call.Reply...)
		c.block(st)
		return
	}
	c.sendWindow -= int64(total)
	c.out = appendFrame(c.out, http2.FrameData, 0, st.id, total)
	c.out = append(appendMessagePrefix(c.out, n), call.Reply...)
	c.out = c.appendTrailers(c.out, st.id)
	c.sent(st)
}

// sent ends a call whose answer is on its way.
func (c *conn) sent(st *stream) {
	if undo := st.call.Unwanted; undo != nil {
		c.receipts.add(st.id, st.call.UnwantedSize, undo, c.now)
		st.call.Unwanted = nil
	}
	c.drop(st, false)
}

func appendMessagePrefix(b []byte, n int) []byte {
	return append(b, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// drop takes a stream out of the table. cut tells that we cut it off while the
// client may still send.
func (c *conn) drop(st *stream, cut bool) {
	if st.gone {
		return
	}
	st.gone = true
	delete(c.streams, st.id)
	c.closed.add(st.id, cut)
	if st.queued || st.handed || st.blocked {
		// Someone still holds it, and releases it when they come to it.
		st.call.cancelled.Store(true)
		c.opened = c.opened || st.blocked
		return
	}
	c.release(st)
}

// abandon forgets a call that nobody waits for.
func (c *conn) abandon(st *stream) {
	if st.gone {
		c.release(st)
	} else {
		c.drop(st, true)
	}
}

// release gives a stream's memory back. Until then it counts as active, so
// that calls taken back cannot pile up in a handler.
func (c *conn) release(st *stream) {
	c.active--
	c.held -= st.held
	if undo := st.call.Unwanted; undo != nil { // the answer was not sent
		undo()
	}
	st.recycle()
}

// reset sends RST_STREAM.
func (c *conn) reset(id uint32, code http2.ErrCode) {
	c.out = appendReset(c.out, id, code)
}

// streamError ends a stream for a fault of the client's.
func (c *conn) streamError(id uint32, code http2.ErrCode) {
	c.pay(costStreamError)
	c.reset(id, code)
	if st := c.streams[id]; st != nil {
		c.drop(st, true)
		return
	}
	if known, _ := c.closed.find(id); !known {
		c.closed.add(id, true)
	}
}
