package transport

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Handlers make s answer all methods on package unary's server, by their full names: all calls that have arrived on a
// connection are decided as one slice. Where the backend does no I/O they are decided in the goroutine that reads the
// connection.
func Handlers(s *ratelimit.Service, observe ratelimit.Observe) map[string]unary.Handler {
	all := map[string]unary.Handler{}
	for _, m := range Methods {
		all[m.Path()] = Handler(s, m, observe)
	}
	return all
}

// Handler makes s answer one method. observe is called with the duration and the results of calls.
func Handler(s *ratelimit.Service, m *Method, observe ratelimit.Observe) unary.Handler {
	demandEncoder(s)
	h := &unaryHandler{service: s, method: m, observe: observe}
	names := headerNames(s)
	if s.Local() {
		return unary.Handler{Metadata: names, TooLarge: true, Abandoned: h.abandoned, Inline: h.inline}
	}
	return unary.Handler{Metadata: names, TooLarge: true, Abandoned: h.abandoned,
		Serve: h.serve, Shed: h.shed, First: h.first}
}

// first reports whether a call goes before others.
func (h *unaryHandler) first(c *unary.Call) bool {
	return h.method.Returns || messages.MayReturnLease(c.Message)
}

type unaryHandler struct {
	service *ratelimit.Service
	method  *Method
	observe ratelimit.Observe
	slices  sync.Pool // *callSlice
}

// A callSlice is the memory for deciding a slice of calls.
type callSlice struct {
	exchanges []*exchange
	calls     []*unary.Call
	reqs      []*ratelimit.Request
	resps     []*ratelimit.Response
}

// errDeadlinePassed answers calls whose caller has stopped waiting.
var errDeadlinePassed = &unary.Status{
	Code: unary.DeadlineExceeded, Message: "deadline exceeded before the call was read",
}

func (h *unaryHandler) inline(ctx context.Context, calls []*unary.Call) []*unary.Call {
	h.serve(ctx, calls)
	return nil
}

// serve decides calls by the earliest of their deadlines, which are close
// together.
func (h *unaryHandler) serve(ctx context.Context, calls []*unary.Call) {
	start := time.Now()
	cs, earliest := h.decode(calls, start)
	if !earliest.IsZero() && !h.service.Local() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, earliest)
		defer cancel()
	}
	h.method.Do(h.service, ctx, cs.reqs, cs.resps)
	h.encode(cs, start)
}

// shed answers without waiting for the backend.
func (h *unaryHandler) shed(calls []*unary.Call) {
	start := time.Now()
	cs, _ := h.decode(calls, start)
	h.method.Do(h.service, ratelimit.NoTime, cs.reqs, cs.resps)
	h.encode(cs, start)
}

// abandoned releases the leases that a call brings back whose caller is gone. It
// does not decode other calls, of which a flood has many.
func (h *unaryHandler) abandoned(c *unary.Call) {
	if !h.method.Returns && !messages.MayEndRequests(c.Message) {
		return
	}
	ex := exchanges.Get().(*exchange)
	defer exchanges.Put(ex)
	if h.method.Read(&ex.req, c.Message) == nil {
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
			c.Reply = h.method.Write(h.service.TooLarge(), c.Reply)
			h.observe(time.Since(now), ratelimit.CallInvalid, 1)
			continue
		}
		n := len(cs.reqs)
		if n == len(cs.exchanges) {
			cs.exchanges = append(cs.exchanges, new(exchange))
		}
		ex := cs.exchanges[n]
		if err := h.method.Read(&ex.req, c.Message); err != nil {
			c.Err = &unary.Status{Code: unary.InvalidArgument, Message: err.Error()}
			h.observe(time.Since(now), ratelimit.CallInvalid, 1)
			continue
		}
		ex.req.Peer = c.Peer
		setHeaders(&ex.req, c.Metadata)
		if !c.Deadline.IsZero() && (earliest.IsZero() || c.Deadline.Before(earliest)) {
			earliest = c.Deadline
		}
		cs.calls, cs.reqs, cs.resps = append(cs.calls, c), append(cs.reqs, &ex.req), append(cs.resps, &ex.resp)
	}
	return cs, earliest
}

// encode answers the calls of cs, and puts cs back into the pool.
func (h *unaryHandler) encode(cs *callSlice, start time.Time) {
	took := time.Since(start)
	var results [ratelimit.NumCallResults]int
	for i, c := range cs.calls {
		resp := cs.resps[i]
		results[resp.Result()]++
		if err := resp.Err; err != nil {
			c.Err = &unary.Status{Code: unary.Code(err.Code), Message: err.Message}
			continue
		}
		c.Reply = h.method.Write(resp, c.Reply)
		c.Undo, c.UndoSize = h.service.Undo(resp)
	}
	for r, n := range results {
		if n > 0 {
			h.observe(took, ratelimit.CallResult(r), n)
		}
	}
	for i, req := range cs.reqs {
		if !req.Release(i) {
			cs.exchanges[i] = new(exchange)
		}
	}
	clear(cs.calls)
	clear(cs.reqs)
	clear(cs.resps)
	cs.calls, cs.reqs, cs.resps = cs.calls[:0], cs.reqs[:0], cs.resps[:0]
	h.slices.Put(cs)
}
