package unary

import (
	"fmt"

	"golang.org/x/net/http2"
)

const (
	connReturn   = 64 << 10 // bytes after which a connection gets window back
	streamReturn = 16 << 10 // bytes after which a stream gets window back
	smallData    = 64       // bytes of a DATA frame that is suspiciously small
)

// requests takes requests from their headers to the handler. The connection's
// mutex guards it.
type requests struct {
	*streams
	ready      []*stream // complete, for the handlers
	recvWindow int       // bytes that the client may send on the connection
}

func (r *requests) init(s *streams) { r.streams, r.recvWindow = s, connWindow }

// headers opens a stream: it begins a call, or refuses it.
func (r *requests) headers(block headerBlock, q *request) {
	switch {
	case block.dependsOnItself || q.malformed != "":
		r.streamError(block.id, http2.ErrCodeProtocol)
		return
	case r.active >= r.conf.MaxConcurrentStreams, !r.room(streamCost):
		r.pay(costRefused)
		r.turnAway(block.id)
		return
	}
	st := r.add(block.id, q)
	if block.end { // for refuse to know
		r.requestEnds(st)
	}
	if status := r.admit(st, q); status != nil {
		r.refuse(st, status)
		return
	}
	if block.end {
		r.complete(st)
		return
	}
	r.checkLater()
}

// admit sees whether a call can be served. Where the request is not gRPC at all it
// leaves an HTTP answer in st.refusal, for when the request has ended.
func (r *requests) admit(st *stream, q *request) *Status {
	switch {
	case q.tooLarge:
		st.refusal = refusal{431, &Status{ResourceExhausted, fmt.Sprintf("header list larger than max (%d)", q.limit)}}
	case q.method != "POST":
		st.refusal = refusal{405, &Status{Internal, fmt.Sprintf("method %q where POST is expected", short(q.method))}}
	case !isGRPC(q.contentType):
		st.refusal = refusal{415,
			&Status{InvalidArgument, fmt.Sprintf("invalid gRPC request content-type %q", short(q.contentType))}}
	case q.h == nil:
		return r.unknownMethod(q.path)
	case q.encoding == "gzip":
		st.gzip = true
	case q.encoding != "" && q.encoding != "identity":
		return &Status{Unimplemented, fmt.Sprintf("grpc-encoding %q is not supported", short(q.encoding))}
	}
	if q.timeout != "" {
		timeout, ok := parseTimeout(q.timeout)
		if !ok {
			return &Status{Internal, fmt.Sprintf("malformed grpc-timeout %q", short(q.timeout))}
		}
		st.call.Deadline = r.now.Add(timeout)
	}
	st.call.Metadata, st.call.Peer = append(st.call.Metadata, q.metadata...), r.peer
	n := 0
	for _, value := range q.metadata {
		n += len(value)
	}
	return r.reserve(st, n)
}

// refuse answers a call that does not reach its handler. One for which there is no
// memory costs points: a client must not send such ones without end.
func (r *requests) refuse(st *stream, status *Status) {
	if status == errMemory {
		r.pay(costRefused)
	}
	r.streams.refuse(st, status)
}

// maxQuoted bounds what an error repeats of a client's header, in bytes. A header costs the client a
// byte when it is in HPACK's table, and its repetition costs us up to three times its size.
const maxQuoted = 128

// short returns the beginning of a text that a client has sent.
func short(text string) string {
	if len(text) <= maxQuoted {
		return text
	}
	return text[:maxQuoted] + "..."
}

func (r *requests) unknownMethod(path string) *Status {
	message := "unknown method " + short(path)
	if hint := r.conf.UnknownHint; hint != "" {
		message += "; " + hint
	}
	return &Status{Unimplemented, message}
}

// trailers ends a request with trailers, of which none means anything to us.
func (r *requests) trailers(st *stream, block headerBlock, q *request) {
	switch {
	case st.ended:
		r.streamError(st.id, http2.ErrCodeStreamClosed)
	case !block.end || block.dependsOnItself || q.malformed != "":
		r.streamError(st.id, http2.ErrCodeProtocol)
	default:
		r.complete(st)
	}
}

// data takes DATA of an open stream: p, of size bytes with its padding.
func (r *requests) data(st *stream, p []byte, size int, end bool) {
	if !r.receive(st, size, end) {
		return
	}
	st.received += int64(len(p))
	if st.refusal.http == 0 && !st.call.TooLarge {
		if status := r.body(st, p); status != nil {
			r.refuse(st, status)
			return
		}
	}
	if end {
		r.complete(st)
	}
}

// payData takes points for DATA that brings a request hardly nearer to its end.
func (r *requests) payData(size int) {
	switch {
	case size == 0:
		r.pay(costUseless)
	case size < smallData:
		r.pay(costSmallData)
	}
}

// receiveConn accounts for n bytes of flow-controlled data on the connection.
func (r *requests) receiveConn(n int) bool {
	if n > r.recvWindow {
		r.w.fail(http2.ErrCodeFlowControl, "more data than the connection's window allows")
		return false
	}
	r.recvWindow -= n
	return true
}

// receive accounts for n bytes on a stream, and gives window back if the client
// has more to send.
func (r *requests) receive(st *stream, n int, end bool) bool {
	if n > st.recvWindow {
		r.resetStream(st, http2.ErrCodeFlowControl)
		return false
	}
	st.recvWindow -= n
	st.unreturned += n
	if !end && st.unreturned >= streamReturn {
		r.w.windowUpdate(st.id, st.unreturned)
		st.recvWindow += st.unreturned
		st.unreturned = 0
	}
	return true
}

// returnWindow gives the connection's window back for what has arrived. It does
// not matter what became of the data: a bound of its own holds what is kept.
func (r *requests) returnWindow() {
	if n := connWindow - r.recvWindow; n >= connReturn {
		r.w.windowUpdate(0, n)
		r.recvWindow = connWindow
	}
}

// body adds to a request's message.
func (r *requests) body(st *stream, p []byte) *Status {
	status := r.reserve(st, len(p))
	if status == nil {
		status = st.add(p, r.conf.MaxMessageSize)
	}
	if r.forgo(st, status) {
		return nil
	}
	return status
}

// complete makes a call of a request that is complete.
func (r *requests) complete(st *stream) {
	r.requestEnds(st)
	if st.declared >= 0 && st.declared != st.received {
		r.streamError(st.id, http2.ErrCodeProtocol)
		return
	}
	if answer := st.refusal; answer.http != 0 {
		r.failWith(st, callFailed, answer.http, answer.status)
		r.drop(st, false)
		return
	}
	if !st.call.TooLarge {
		if status := r.message(st); status != nil && !r.forgo(st, status) {
			r.refuse(st, status)
			return
		}
	}
	st.ready = true
	r.ready = append(r.ready, st)
}

// message makes the call's message of what has arrived.
func (r *requests) message(st *stream) *Status {
	status := st.decode(r.conf.MaxMessageSize, r.conf.MaxHeld-r.requestBytes)
	n := len(st.plain)
	r.pay(max(0, n-inflation*len(st.body)) / inflatedPerPoint)
	if status != nil || n == 0 {
		return status
	}
	return r.reserve(st, n)
}

// batchBytes is the size of the messages, in bytes, of which a batch takes no
// further ones: about what one read brings, unless it is compressed. Handlers may
// need many times as much memory.
const batchBytes = 16 << 10

// nextBatch appends, of the calls that are complete, some of one handler.
func (r *requests) nextBatch(batch []*stream) []*stream {
	bytes := 0
	rest := r.ready[:0]
	for _, st := range r.ready {
		switch {
		case r.abusive:
			st.ready = false
			r.abandon(st)
		case st.closed || r.state == stateClosed: // cancelled since it was complete
			st.ready = false
			r.abandoned(st)
			r.abandon(st)
		case len(batch) > 0 && (batch[0].h != st.h || bytes >= batchBytes):
			rest = append(rest, st)
		case !st.call.Deadline.IsZero() && !r.now.Before(st.call.Deadline):
			st.ready = false
			r.abandoned(st)
			r.refuse(st, errDeadline)
		default:
			st.ready, st.handed = false, true
			bytes += len(st.call.Message)
			batch = append(batch, st)
		}
	}
	r.ready = rest
	return batch
}

var errDeadline = &Status{DeadlineExceeded, "the deadline passed before the call was handled"}

// closeAll ends the calls that did not reach a handler, of a connection that is
// closed. There are some only if the read loop has panicked.
func (r *requests) closeAll() {
	for _, st := range r.ready {
		st.ready = false
		r.abandon(st)
	}
	r.ready = nil
}
