package accesslog

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

const (
	// maxWaiting is how many bytes of tokens may wait for the backend, per
	// stream. Beyond it the stream is not read.
	maxWaiting = 1 << 20
	// maxDelayed is how many bytes of tokens of ends may be delayed, of all
	// streams together. Beyond it ends are applied at once.
	maxDelayed = 64 << 20
	// linger is how long a stream is read after its context has ended, so that
	// ends that have arrived are not lost.
	linger = 100 * time.Millisecond
	// maxOwners bounds the owners that one stream stands for.
	maxOwners = 16
)

// domain names the access log where a tracker logs tokens that are not its own.
const domain = "accesslog"

// A reader reads a stream. One goroutine receives messages. The handler's
// goroutine applies them: messages that arrive while it is busy are merged.
type reader struct {
	*server
	stream grpc.ServerStream
	owner  string // the sender's name, for logs; receive sets it before the first message is in inbox

	inbox chan *changes // at most one; closed when nothing more comes
	err   error         // why; set before inbox is closed
	done  chan struct{} // closed when the handler returns

	ends    []delayedEnds // in the order in which they are due
	watched map[leases.OwnerID]func()
}

// delayedEnds are tokens of requests that have ended.
type delayedEnds struct {
	due    time.Time
	tokens []string
	size   int
}

func newReader(s *server, stream grpc.ServerStream) *reader {
	r := &reader{server: s, stream: stream, inbox: make(chan *changes, 1), done: make(chan struct{})}
	if md, ok := metadata.FromIncomingContext(stream.Context()); ok {
		if values := md[ratelimit.MetadataOwner]; len(values) > 0 {
			r.owner = ownerName(values[0])
		}
	}
	return r
}

// run returns when the stream has ended, with its status.
func (r *reader) run() error {
	ctx := r.stream.Context()
	defer r.unwatch()
	defer close(r.done)
	defer r.flushEnds(ctx, time.Time{})
	r.Panics.Go("access log", func() {
		defer close(r.inbox)
		if err := r.Panics.Do("access log", r.receive); err != nil {
			r.err = status.Error(codes.Internal, "internal error")
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
			r.handle(ctx, o)
		case now := <-due.C:
			r.flushEnds(ctx, now)
		case <-silent.C:
			return status.Errorf(codes.DeadlineExceeded, "the access log sent no entry within %v", r.FirstEntry)
		case <-done:
			done, timeout = nil, time.After(linger)
		case <-timeout:
			select {
			case o, ok := <-r.inbox:
				if ok {
					r.handle(ctx, o)
				}
			default:
			}
			return status.Error(codes.Unavailable, "the server closed the stream")
		}
		if len(r.ends) > 0 {
			due.Reset(time.Until(r.ends[0].due))
		}
	}
}

// finish answers a stream that the client has closed.
func (r *reader) finish() error {
	if errors.Is(r.err, io.EOF) {
		return r.stream.SendMsg(new(emptypb.Empty)) // as StreamAccessLogsResponse is
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
			r.logBroken()
			return
		}
		o := r.decode(m.ProtoReflect().GetUnknown())
		if first && r.owner == "" {
			r.owner = o.node
		}
		if !r.enqueue(o) {
			return
		}
	}
}

// logBroken logs the end of a stream that neither side has ended.
func (r *reader) logBroken() {
	switch status.Code(r.err) {
	case codes.Canceled, codes.DeadlineExceeded:
	default:
		if !errors.Is(r.err, io.EOF) {
			r.warn("access log stream failed; entries may be lost", "owner", r.owner, "error", r.err)
		}
	}
}

// enqueue puts o into the inbox, merged with what is there, and waits if there is
// too much. It returns false if the handler has returned.
func (r *reader) enqueue(o *changes) bool {
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
	case <-r.done:
		return false
	}
}

// handle applies messages. Renewals come first: the end of a request comes after
// its renewals.
func (r *reader) handle(ctx context.Context, o *changes) {
	for e, n := range o.events {
		if n > 0 {
			r.Count(leases.LogEvent(e), n)
		}
	}
	if bad, dropped := o.events[leases.EntryMalformed], o.events[leases.EntryDropped]; bad+dropped > 0 {
		r.warn("access log entries ignored", "owner", r.owner, "malformed", bad, "dropped", dropped)
	}
	r.apply(ctx, leases.Renew, o.renew)
	if len(o.release) > 0 {
		r.delayEnds(ctx, o.release)
	}
}

// delayEnds delays ends by EndDelay. Envoy reports each end by a call as well. If
// the access log ended the lease first, that call would count as the end of an
// unknown lease.
func (r *reader) delayEnds(ctx context.Context, tokens []string) {
	e := delayedEnds{time.Now().Add(r.EndDelay), tokens, 0}
	for _, token := range tokens {
		e.size += len(token) + tokenOverhead
	}
	all := e.size
	for i := range r.ends {
		all += r.ends[i].size
	}
	if all > maxWaiting {
		r.flushEnds(ctx, time.Time{})
	}
	r.ends = append(r.ends, e)
	if r.delayed.Add(int64(e.size)) > maxDelayed {
		r.flushEnds(ctx, time.Time{})
	}
}

// flushEnds applies the ends that are due at now, or all if now is zero.
func (r *reader) flushEnds(ctx context.Context, now time.Time) {
	n, size := 0, 0
	var tokens []string
	for n < len(r.ends) && (now.IsZero() || !r.ends[n].due.After(now)) {
		tokens = append(tokens, r.ends[n].tokens...)
		size += r.ends[n].size
		n++
	}
	r.ends = append(r.ends[:0], r.ends[n:]...)
	r.delayed.Add(int64(-size))
	r.apply(ctx, leases.End, tokens)
}

func (r *reader) apply(ctx context.Context, a leases.Action, tokens []string) {
	if len(tokens) == 0 {
		return
	}
	// The stream may have ended; the leases must end all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Timeout)
	defer cancel()
	for _, owner := range r.leases.Apply(ctx, domain, a, tokens) {
		if r.watched[owner] == nil && len(r.watched) < maxOwners {
			if r.watched == nil {
				r.watched = map[leases.OwnerID]func(){}
			}
			r.watched[owner] = r.leases.Watch(owner)
		}
	}
}

// unwatch notes that the stream has ended.
func (r *reader) unwatch() {
	for _, closed := range r.watched {
		closed()
	}
}
