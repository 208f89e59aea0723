package unary

import (
	"sync"
	"time"
)

// A stream is one call and its way through the server. Its connection's mutex
// guards it, but for the fields of call, which belong to the handler while it
// runs.
type stream struct {
	call Call
	h    *handler
	id   uint32

	ended   bool // the client has sent all of its request
	ready   bool // complete, on its way to the handler
	handed  bool // the handler has it
	waiting bool // its answer waits for window
	closed  bool // not in the connection's table any more
	kept    bool // answered, and kept open

	urgency  int       // see urgency, of calls that are read with others
	since    time.Time // when its headers came, or since when its answer waits for window
	refusal  refusal   // an HTTP answer that waits for the end of the request
	gzip     bool      // grpc-encoding
	declared int64     // content-length, or -1
	received int64     // bytes of DATA without padding

	body    []byte // the gRPC frame: 5 bytes of prefix, then the message
	plain   []byte // the message decompressed
	size    int    // bytes of the two and of the metadata
	counted int    // of which count against the connection's bound

	unreturned int   // bytes of DATA received for which no window was given back
	recvWindow int   // how much more the client may send
	sendWindow int64 // how much the client lets us send; may be negative

	answer []byte // the message that waits for window
	sent   int    // bytes of answer that are sent
}

// Buffers larger than this, in bytes, are not kept for the next call.
const maxKeptBuffer = 2 << 10

var streamPool = sync.Pool{New: func() any { return new(stream) }}

func newStream(id uint32, h *handler) *stream {
	st := streamPool.Get().(*stream)
	st.id, st.h = id, h
	return st
}

// recycle makes st free for another call. Nobody may know it any more.
func (st *stream) recycle() {
	call := &st.call
	call.Message, call.TooLarge, call.Err, call.Deadline, call.later = nil, false, nil, time.Time{}, false
	call.Undo, call.UndoSize, call.Open = nil, 0, false
	call.cancelled.Store(false)
	clear(call.Metadata)
	call.Metadata = call.Metadata[:0]
	call.Reply = kept(call.Reply)
	st.body, st.plain, st.answer = kept(st.body), nil, nil // the others are rare
	st.h = nil
	st.ended, st.ready, st.handed, st.waiting, st.closed = false, false, false, false, false
	st.gzip, st.kept = false, false
	st.refusal = refusal{}
	st.size, st.counted, st.unreturned, st.sent = 0, 0, 0, 0
	streamPool.Put(st)
}

func kept(b []byte) []byte {
	if cap(b) > maxKeptBuffer {
		return nil
	}
	return b[:0]
}

// closedStreams are the streams that were closed last. By them a late frame on
// one of them, also one that we cut off ourselves, differs from a fault of the client's.
type closedStreams struct {
	ids  [64]uint32
	cut  [64]bool // by RST_STREAM of ours; frames that are still on their way are not a fault
	next int
}

func (r *closedStreams) add(id uint32, cut bool) {
	r.ids[r.next], r.cut[r.next] = id, cut
	r.next = (r.next + 1) % len(r.ids)
}

func (r *closedStreams) find(id uint32) (known, cut bool) {
	for i, closed := range r.ids {
		if closed == id {
			return true, r.cut[i]
		}
	}
	return false, false
}

// A refusal is an answer below gRPC: an HTTP status other than 200.
type refusal struct {
	http   int // or 0 for none
	status *Status
}
