package ratelimit

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/wire/unary"
)

// UnaryHandler makes s answer on package unary's server: all calls that have
// arrived on a connection are decided as one slice. Where the backend does no
// I/O they are decided in the goroutine that reads the connection.
func UnaryHandler(s *Service, observe Observe) unary.Handler {
	h := &unaryHandler{service: s, observe: observe}
	names := []string{MetadataID, MetadataOwner, MetadataLeaseKey}
	if s.Traced() || s.LogsRefusals() {
		names = append(names, MetadataTraceParent, MetadataTraceState)
	}
	if s.LogsRefusals() {
		names = append(names, MetadataRequestID)
	}
	if s.conf.Caps.Local {
		return unary.Handler{Metadata: names, TooLarge: true, Abandoned: h.abandoned, Inline: func(ctx context.Context, calls []*unary.Call) []*unary.Call {
			h.serve(ctx, calls)
			return nil
		}}
	}
	return unary.Handler{Metadata: names, TooLarge: true, Serve: h.serve, Shed: h.shed, Abandoned: h.abandoned, First: mayReturnLease}
}

type unaryHandler struct {
	service *Service
	observe Observe
	slices  sync.Pool // *callSlice
}

// A callSlice is the memory for deciding a slice of calls.
type callSlice struct {
	exchanges []*exchange
	calls     []*unary.Call
	reqs      []*Request
	resps     []*Response
}

// errDeadlinePassed answers calls whose caller has stopped waiting.
var errDeadlinePassed = &unary.Status{Code: unary.DeadlineExceeded, Message: "deadline exceeded before the call was read"}

// serve decides calls by the earliest of their deadlines, which are close
// together.
func (h *unaryHandler) serve(ctx context.Context, calls []*unary.Call) {
	start := time.Now()
	cs, earliest := h.decode(calls, start)
	if !earliest.IsZero() && !h.service.conf.Caps.Local {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, earliest)
		defer cancel()
	}
	h.service.Decide(ctx, cs.reqs, cs.resps)
	h.encode(cs, start)
}

// shed answers without waiting for the backend.
func (h *unaryHandler) shed(calls []*unary.Call) {
	start := time.Now()
	cs, _ := h.decode(calls, start)
	h.service.DecideNow(cs.reqs, cs.resps)
	h.encode(cs, start)
}

// mayReturnLease reports whether a call may bring leases back. Such calls go
// first, because they make room for requests after them. Their deadline matters
// little: a release that the backend cannot do in time is retried.
func mayReturnLease(c *unary.Call) bool { return bytes.Contains(c.Message, opKey) }

var opKey = []byte(OpKey)

// endsRequests reports whether a message may end requests in flight, by a lease or
// by negative hits. It may be true for a message that ends none. It may be false
// only if the message's encoder did not write the shortest form.
func endsRequests(message []byte) bool {
	return bytes.Contains(message, opKey) || bytes.Contains(message, negativeHits)
}

var negativeHits = []byte{fieldDescriptorNegative << 3, 1}

// abandoned releases the leases that a call brings back whose caller is gone. It
// does not decode other calls, of which a flood has many.
func (h *unaryHandler) abandoned(c *unary.Call) {
	if !endsRequests(c.Message) {
		return
	}
	ex := exchanges.Get().(*exchange)
	defer exchanges.Put(ex)
	if ex.req.Decode(c.Message) == nil {
		h.service.QueueReturns(&ex.req)
	}
}

// decode decodes calls, and fails those that are malformed or late. It returns the
// earliest deadline of the others, or zero.
func (h *unaryHandler) decode(calls []*unary.Call, now time.Time) (cs *callSlice, earliest time.Time) {
	cs, _ = h.slices.Get().(*callSlice)
	if cs == nil {
		cs = new(callSlice)
	}
	for _, c := range calls {
		if !c.Deadline.IsZero() && !c.Deadline.After(now) {
			h.abandoned(c)
			c.Err = errDeadlinePassed
			continue
		}
		if c.TooLarge {
			c.Reply = h.service.tooLarge().AppendTo(c.Reply)
			h.observe(time.Since(now), CallInvalid, 1)
			continue
		}
		n := len(cs.reqs)
		if n == len(cs.exchanges) {
			cs.exchanges = append(cs.exchanges, new(exchange))
		}
		ex := cs.exchanges[n]
		if err := ex.req.Decode(c.Message); err != nil {
			c.Err = &unary.Status{Code: unary.InvalidArgument, Message: err.Error()}
			h.observe(time.Since(now), CallInvalid, 1)
			continue
		}
		ex.req.Peer = c.Peer
		if md := c.Metadata; len(md) >= 3 {
			ex.req.SetMetadata(md[0], md[1], md[2])
			if len(md) >= 5 {
				ex.req.SetTrace(md[3], md[4])
			}
			if len(md) >= 6 {
				ex.req.SetRequestID(md[5])
			}
		}
		if !c.Deadline.IsZero() && (earliest.IsZero() || c.Deadline.Before(earliest)) {
			earliest = c.Deadline
		}
		cs.calls, cs.reqs, cs.resps = append(cs.calls, c), append(cs.reqs, &ex.req), append(cs.resps, &ex.resp)
	}
	return cs, earliest
}

// tooLarge answers a request whose message was dropped: OVER_LIMIT. If the call failed, Envoy would
// let the request pass, and a client could cause that by a long header.
func (s *Service) tooLarge() *Response { return &Response{OverLimit: !s.conf.ShadowMode} }

// encode answers the calls of cs, and puts cs back into the pool.
func (h *unaryHandler) encode(cs *callSlice, start time.Time) {
	took := time.Since(start)
	var results [NumCallResults]int
	for i, c := range cs.calls {
		resp := cs.resps[i]
		results[resp.Result()]++
		if err := resp.Err; err != nil {
			c.Err = &unary.Status{Code: unary.Code(err.Code), Message: err.Message}
			continue
		}
		c.Reply = resp.AppendTo(c.Reply)
		if c.Undo = h.service.Undo(resp); c.Undo != nil {
			c.UndoSize = resp.undoSize()
		}
	}
	for r, n := range results {
		if n > 0 {
			h.observe(took, CallResult(r), n)
		}
	}
	for i, req := range cs.reqs {
		switch {
		case req.size <= smallMessage:
		case i < keptLarge:
			req.dropStrings()
		default:
			cs.exchanges[i] = new(exchange)
		}
	}
	clear(cs.calls)
	clear(cs.reqs)
	clear(cs.resps)
	cs.calls, cs.reqs, cs.resps = cs.calls[:0], cs.reqs[:0], cs.resps[:0]
	h.slices.Put(cs)
}
