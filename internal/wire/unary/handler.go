package unary

import (
	"context"
	"sync/atomic"
	"time"
)

// A Handler answers the calls of one method. At least one of Inline and Serve
// is set.
type Handler struct {
	// Metadata are the names, in lower case, of the request headers that the
	// handler wants to see in [Call.Metadata].
	Metadata []string

	// Inline answers calls in the goroutine that reads their connection. It
	// must not block and must not do I/O: nothing else is read from the
	// connection until it returns. It returns the calls that it leaves to
	// Serve; it may reorder calls and return a part of it. Without Inline, all
	// calls are left to Serve.
	Inline func(ctx context.Context, calls []*Call) (rest []*Call)

	// Serve answers calls in a goroutine of its own, of which there are
	// [Config.Workers] at most. The deadlines of the calls differ by less than an
	// eighth of the time that is left, except for those of calls that go First.
	// Without Serve, Inline must leave no calls.
	Serve func(ctx context.Context, calls []*Call)

	// Shed answers, without blocking, the calls for which there is no room
	// in the queue to Serve, or no turn before most of their time has passed.
	// Without it they fail with UNAVAILABLE.
	Shed func(calls []*Call)

	// First, where set, reports whether the calls after this one must see its
	// effect. Such a call is served with the calls that have the least time left
	// of those that are read with it, whatever its own deadline.
	First func(call *Call) bool

	// TooLarge has the handler answer calls whose message is larger than
	// [Config.MaxMessageSize], or than the memory that is left for requests: they come
	// without it. Otherwise such calls fail with RESOURCE_EXHAUSTED.
	TooLarge bool

	// Abandoned, where set, is called with each call that nobody waits for when
	// its turn comes: its client has cancelled it or has disconnected, or its
	// deadline has passed. Its message may matter all the same. Abandoned must not
	// block, and may run in the goroutine that reads the connection.
	Abandoned func(call *Call)
}

// A Call is one call of a method. It and all memory reached through it belong
// to the handler until the handler returns, and must not be kept.
//
// The calls of a slice come from the same connection. Handlers of different
// connections run at the same time, and so do those of one connection where
// Serve is used. The context that handlers get ends when the server is closed;
// Deadline and Cancelled say when one call ends.
type Call struct {
	Message  []byte    // the request: one message, decompressed
	TooLarge bool      // the request was too large, and Message is empty; see [Handler.TooLarge]
	Deadline time.Time // when the client stops waiting, or zero
	// the values of [Handler.Metadata], "" where absent; repeated ones are joined with ","; more than
	// 256 bytes are left out
	Metadata []string

	Peer string // who calls, by [Config.Identify]

	// Reply is the response message. The handler appends to it; it comes
	// empty, with memory of earlier calls.
	Reply []byte
	// Open keeps the call open after Reply until the connection is drained or the client ends the call. It is for
	// clients that watch for a change. A connection keeps few calls open; others end immediately.
	Open bool
	// Err, where set, is the answer in place of Reply. The server only reads
	// it, so handlers may share one value between calls.
	Err *Status
	// Undo, where the handler sets it, is called once if the client turns out not
	// to have taken the answer: it had cancelled the call, or it resets the call
	// when the answer is already on its way. Undo must not block. Nothing is known
	// of answers that were on their way when the connection broke.
	Undo func()
	// UndoSize is how many bytes of memory Undo keeps. The server keeps Undo for a
	// second at most, and those of a connection within a bound of bytes.
	UndoSize int

	cancelled atomic.Bool
	later     bool // left by Inline to Serve
}

// Cancelled reports whether the client has cancelled the call or has disconnected.
// The answer of such a call is dropped.
func (c *Call) Cancelled() bool { return c.cancelled.Load() }

// handler is a Handler in the server's registry.
type handler struct {
	Handler
	method string
}
