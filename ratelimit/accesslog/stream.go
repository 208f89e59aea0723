package accesslog

import (
	"context"
	"errors"
	"io"
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
	// maxDelayed is how many bytes of tokens of ends may be kept back, of all
	// streams together. Beyond it ends are passed on at once.
	maxDelayed = 64 << 20
	// linger is for how long a stream whose context has ended is still read:
	// ends that have arrived already are not to be lost.
	linger = 100 * time.Millisecond
	// maxOwner bounds a proxy's name in logs.
	maxOwner = 256
	// maxOwners bounds the owners that one stream stands for.
	maxOwners = 16
)

// A reader is a stream. One goroutine receives; the handler's own does what the
// messages say, all that have come while it was busy at once.
type reader struct {
	*server
	stream grpc.ServerStream
	owner  string // the sender's name, for logs; receive sets it before the first message is in inbox

	inbox chan *orders  // at most one; closed when nothing more comes
	err   error         // why; set before inbox is closed
	over  chan struct{} // closed when the handler returns

	ends    []delayedEnds // in the order in which they are due
	watched map[ratelimit.OwnerID]func()
}

// delayedEnds are tokens of requests that have ended.
type delayedEnds struct {
	due    time.Time
	tokens []string
	size   int
}

func newReader(s *server, stream grpc.ServerStream) *reader {
	r := &reader{server: s, stream: stream, inbox: make(chan *orders, 1), over: make(chan struct{})}
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
	ctx := r.stream.Context()
	defer r.unwatch()
	defer close(r.over)
	defer r.tellEnds(ctx, time.Time{})
	r.Panics.Go("access log", func() {
		defer close(r.inbox)
		if err := r.Panics.Do("access log", r.receive); err != nil {
			r.err = status.Error(codes.Internal, "an entry could not be handled")
		}
	})
	silent := time.NewTimer(r.FirstEntry)
	defer silent.Stop()
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	done, timeout := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case o, ok := <-r.inbox:
			if !ok {
				return r.finish()
			}
			silent.Stop()
			r.do(ctx, o)
		case now := <-due.C:
			r.tellEnds(ctx, now)
		case <-silent.C:
			return status.Errorf(codes.DeadlineExceeded, "the access log has sent nothing within %v", r.FirstEntry)
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
		if len(r.ends) > 0 {
			due.Reset(time.Until(r.ends[0].due))
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
	if len(o.release) > 0 {
		r.delay(ctx, o.release)
	}
}

// delay keeps ends back for EndDelay. Envoy tells of each end a second time, by
// a call, which is as fast and says more: with a lease that has ended before,
// that call would look like one of a lease that was lost.
func (r *reader) delay(ctx context.Context, tokens []string) {
	e := delayedEnds{time.Now().Add(r.EndDelay), tokens, 0}
	for _, token := range tokens {
		e.size += len(token) + tokenOverhead
	}
	all := e.size
	for i := range r.ends {
		all += r.ends[i].size
	}
	if all > maxWaiting {
		r.tellEnds(ctx, time.Time{})
	}
	r.ends = append(r.ends, e)
	if r.delayed.Add(int64(e.size)) > maxDelayed {
		r.tellEnds(ctx, time.Time{})
	}
}

// tellEnds tells of the ends that are due at now, or of all at the zero time.
func (r *reader) tellEnds(ctx context.Context, now time.Time) {
	n, size := 0, 0
	var tokens []string
	for n < len(r.ends) && (now.IsZero() || !r.ends[n].due.After(now)) {
		tokens = append(tokens, r.ends[n].tokens...)
		size += r.ends[n].size
		n++
	}
	r.ends = append(r.ends[:0], r.ends[n:]...)
	r.delayed.Add(int64(-size))
	r.lease(ctx, ratelimit.OpEnd, tokens)
}

func (r *reader) lease(ctx context.Context, op string, tokens []string) {
	if len(tokens) == 0 {
		return
	}
	// It is done although the stream may be over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Timeout)
	defer cancel()
	for _, owner := range r.leases.Lease(ctx, domain, op, tokens) {
		if r.watched[owner] == nil && len(r.watched) < maxOwners {
			if r.watched == nil {
				r.watched = map[ratelimit.OwnerID]func(){}
			}
			r.watched[owner] = r.leases.Watch(owner)
		}
	}
}

// unwatch says that the stream is over.
func (r *reader) unwatch() {
	for _, closed := range r.watched {
		closed()
	}
}
