package accesslog

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/headgate-rls/headgate/ratelimit"
)

const (
	// maxWaiting is how many bytes of tokens may wait for the backend, per
	// stream. Beyond it the stream is not read.
	maxWaiting = 1 << 20
	// linger is for how long a stream whose context has ended is still read:
	// ends that have arrived already are not to be lost.
	linger = 100 * time.Millisecond
	// maxOwner bounds an owner's name, as ratelimit does for its calls.
	maxOwner = 256
)

// A reader is a stream. One goroutine receives; the handler's own does what the
// messages say, all that have come while it was busy at once.
type reader struct {
	*server
	stream grpc.ServerStream
	name   string // of the stream, for presence
	owner  string // of the stream; receive sets it before the first message is in inbox

	inbox chan *orders  // at most one; closed when nothing more comes
	err   error         // why; set before inbox is closed
	over  chan struct{} // closed when the handler returns

	presence sync.WaitGroup
}

func newReader(s *server, stream grpc.ServerStream) *reader {
	name := make([]byte, 16)
	_, _ = rand.Read(name)
	r := &reader{server: s, stream: stream, name: string(name), inbox: make(chan *orders, 1), over: make(chan struct{})}
	if md, ok := metadata.FromIncomingContext(stream.Context()); ok {
		if values := md[ratelimit.MetadataOwner]; len(values) > 0 {
			r.owner = ownerName(values[0])
		}
	}
	return r
}

// ownerName returns a proxy's name, "" if it is none that can be used.
func ownerName[T []byte | string](name T) string {
	if len(name) > maxOwner || !utf8.ValidString(string(name)) {
		return ""
	}
	return string(name)
}

// run returns when the stream is over, and what it ends with.
func (r *reader) run() error {
	ctx, cancel := context.WithCancel(r.stream.Context())
	defer r.presence.Wait()
	defer cancel()
	defer close(r.over)
	go r.receive()
	first, done, timeout := true, ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case o, ok := <-r.inbox:
			if !ok {
				return r.finish()
			}
			if first {
				first = false
				r.begin(ctx)
			}
			r.do(ctx, o)
		case <-done:
			done, timeout = nil, time.After(linger)
		case <-timeout:
			select {
			case o, ok := <-r.inbox:
				if ok {
					r.do(ctx, o)
				}
			default:
			}
			return status.Error(codes.Unavailable, "the server ends the stream")
		}
	}
}

// finish answers a stream from which nothing more comes.
func (r *reader) finish() error {
	if errors.Is(r.err, io.EOF) {
		return r.stream.SendMsg(new(als.StreamAccessLogsResponse))
	}
	return r.err
}

// receive puts messages into inbox until the stream ends, which it does at the
// latest when the handler returns.
func (r *reader) receive() {
	defer close(r.inbox)
	for first := true; ; first = false {
		// Received as an empty message, all of it is kept as unknown fields:
		// as it was sent.
		var m emptypb.Empty
		if r.err = r.stream.RecvMsg(&m); r.err != nil {
			r.ended()
			return
		}
		o := r.decode(m.ProtoReflect().GetUnknown())
		if first && r.owner == "" {
			r.owner = o.node
		}
		if !r.put(o) {
			return
		}
	}
}

// ended tells of streams that neither side has ended.
func (r *reader) ended() {
	switch status.Code(r.err) {
	case codes.Canceled, codes.DeadlineExceeded:
	default:
		if !errors.Is(r.err, io.EOF) {
			r.warn(badStream, "an access log's stream is broken; what it had sent may be lost", "owner", r.owner, "error", r.err)
		}
	}
}

// put leaves o in the inbox, together with what waits there. If that would be
// too much it waits. It returns false if the handler has returned.
func (r *reader) put(o *orders) bool {
	select {
	case waiting := <-r.inbox:
		if waiting.size+o.size > maxWaiting {
			r.inbox <- waiting // there is room: nobody else puts
			break
		}
		waiting.merge(o)
		o = waiting
	default:
	}
	select {
	case r.inbox <- o:
		return true
	case <-r.over:
		return false
	}
}

// do does what messages say. Renewals come first: an end that came with one is
// later.
func (r *reader) do(ctx context.Context, o *orders) {
	for e, n := range o.events {
		if n > 0 {
			r.Count(Event(e), n)
		}
	}
	if bad, dropped := o.events[EntryMalformed], o.events[EntryDropped]; bad+dropped > 0 {
		r.warn(badEntries, "entries of an access log are left out", "owner", r.owner, "malformed", bad, "beyond_the_bound", dropped)
	}
	r.lease(ctx, ratelimit.OpRenew, o.renew)
	r.lease(ctx, ratelimit.OpEnd, o.release)
}

func (r *reader) lease(ctx context.Context, op string, tokens []string) {
	if len(tokens) == 0 {
		return
	}
	// It is done although the stream may be over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Timeout)
	defer cancel()
	r.leases.Lease(ctx, domain, op, tokens)
}

// begin tells of the owner's presence from the first message on.
func (r *reader) begin(ctx context.Context) {
	if r.owner == "" {
		r.warn(noOwner, "an access log does not say whose it is: it wants a node id or the header "+ratelimit.MetadataOwner)
		return
	}
	r.presence.Go(func() { r.present(ctx) })
}

// present tells of the owner's presence until ctx ends.
func (r *reader) present(ctx context.Context) {
	tick := time.NewTicker(max(r.OwnerGrace/3, time.Millisecond))
	defer tick.Stop()
	for {
		r.presentNow(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *reader) presentNow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	err := r.leases.Present(ctx, r.owner, r.name)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		r.warn(notPresent, "an access log's presence could not be told; after the grace its owner counts as gone", "owner", r.owner, "error", err)
	}
}
