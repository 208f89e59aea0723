package headgate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A call is a request to the engine with its answer. Calls are pooled. A pool keeps them by core, so each has a lane of
// the metrics and of the gate that its core alone mostly uses.
type call struct {
	begun   ratelimit.Begun
	req     ratelimit.Request
	resp    ratelimit.Response
	entries []Entry // of the descriptors of req
}

// A charge is what a call does to the counters.
type charge uint8

const (
	take charge = iota
	ask
	giveBack
)

// prepare makes the request. The engine and its metrics need text.
func (c *call) prepare(domain string, list []Descriptor, what charge) error {
	c.req.Domain, c.req.InProcess = domain, true
	c.req.Descriptors = slices.Grow(c.req.Descriptors, len(list))[:len(list)] // forget has cleared them
	for i := range list {
		d, from := &c.req.Descriptors[i], len(c.entries)
		c.entries = append(c.entries, list[i].Entries...) // so that the caller's need not be in the heap
		d.Entries, d.Refund = c.entries[from:len(c.entries):len(c.entries)], what == giveBack
		d.Hits, d.HasHits = list[i].Cost, list[i].Cost > 0
		for j := range d.Entries {
			if !isText(d.Entries[j].Key) {
				return fmt.Errorf("%w: a key of descriptor %d is not valid UTF-8", ErrInvalid, i)
			}
			if !isText(d.Entries[j].Value) {
				d.Entries = asText(d.Entries)
			}
		}
		if what == ask {
			d.Hits, d.HasHits = 0, true
		}
	}
	return nil
}

// isText reports whether s is valid UTF-8. Most texts are short, and ASCII.
func isText(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return utf8.ValidString(s[i:])
		}
	}
	return true
}

// asText returns a copy of entries in which U+FFFD takes the place of bytes of values that are
// not UTF-8, as the server does it: clients choose values, and must not choose that a call fails.
func asText(entries []Entry) []Entry {
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].Value = strings.ToValidUTF8(entries[i].Value, "\uFFFD")
	}
	return entries
}

// maxKept bounds the entries that a pooled call has room for.
const maxKept = 64

// enter returns a call, which the caller brings back by leave; nil if the limiter is closed.
func (l *Limiter) enter() *call {
	c := l.calls.Get().(*call)
	if l.gate.enter(c.begun.Lane) {
		return c
	}
	l.calls.Put(c)
	return nil
}

func (l *Limiter) leave(c *call) {
	c.begun.Forget()
	if c.req.InProcess { // it was prepared
		c.forget()
	}
	if l.gate.leave(c.begun.Lane) {
		c.begun.Lane = metrics.NextLane()
	}
	l.calls.Put(c)
}

// forget drops what a pooled call must not keep in memory.
func (c *call) forget() {
	if len(c.entries) > maxKept {
		c.entries = nil
	}
	clear(c.entries)
	c.entries = c.entries[:0]
	clear(c.req.Descriptors)
	room := c.req.Descriptors[:0]
	c.req = ratelimit.Request{} // as a whole: the next call must have nothing of this one
	c.req.Descriptors = room
	c.resp.Forget()
}

// admit answers a request if it is one of those that most are: see [ratelimit.Service.Admit].
func (l *Limiter) admit(ctx context.Context, c *call, domain string, list []Descriptor, d *Decision) bool {
	if len(list) != 1 || list[0].Cost > 0 {
		return false
	}
	entries := list[0].Entries
	for i := range entries {
		if !isText(entries[i].Key) || !isText(entries[i].Value) {
			return false
		}
	}
	var start time.Time
	if l.answers != nil {
		start = time.Now()
	}
	var a ratelimit.Admission
	if !l.service.Admit(ctx, &c.begun, domain, entries, &a) {
		return false
	}
	if l.answers != nil {
		l.answers(time.Since(start), ratelimit.CallOK, 1)
	}
	d.Allowed, d.Rule, d.Name = true, a.Rule, a.Name
	d.Max, d.Window = a.Limit.Quota()
	d.Remaining, d.Reset = a.Remaining, time.Duration(a.Reset)*time.Second
	return true
}

// decide answers a call.
func (l *Limiter) decide(ctx context.Context, c *call, d *Decision) error {
	if !l.local {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.timeout)
		defer cancel()
	}
	if l.tracer != nil {
		c.req.Parent = l.tracer.Caller(ctx)
	}
	if l.answers == nil {
		l.service.Finish(ctx, &c.begun, &c.req, &c.resp)
	} else {
		start := time.Now()
		l.service.Finish(ctx, &c.begun, &c.req, &c.resp)
		l.answers(time.Since(start), c.resp.Result(), 1)
	}
	if err := c.resp.Err; err != nil {
		if c.resp.Result() == ratelimit.CallFailed {
			return fmt.Errorf("%w: %s", ErrUnavailable, err.Message)
		}
		return fmt.Errorf("%w: %s", ErrInvalid, err.Message)
	}
	d.fill(&c.resp)
	return nil
}

// Check asks whether a request may pass, and takes its units if it may: of all limits that
// apply to its descriptors, or of none. It fails with [ErrInvalid] if a rule limits
// requests in flight, which need [Limiter.Acquire].
func (l *Limiter) Check(ctx context.Context, domain string, list ...Descriptor) (d Decision, err error) {
	return d, l.call(ctx, domain, list, take, &d)
}

// Peek is [Limiter.Check] that takes nothing: it says whether at least one unit is left.
func (l *Limiter) Peek(ctx context.Context, domain string, list ...Descriptor) (d Decision, err error) {
	return d, l.call(ctx, domain, list, ask, &d)
}

// Refund gives back the units that a Check of the same descriptors has taken. Units of a
// window that has ended are not given back. It fails with [ErrInvalid] if a rule limits
// requests in flight, and with [ErrUnavailable] if the store does not answer in time: then it is not
// known to have given anything back. By on_backend_error: local this process gives back to its own
// counters, which is no error.
func (l *Limiter) Refund(ctx context.Context, domain string, list ...Descriptor) error {
	list = append([]Descriptor(nil), list...)
	for i := range list {
		list[i].Cost = max(list[i].Cost, 1)
	}
	var d Decision
	return l.call(ctx, domain, list, giveBack, &d)
}

func (l *Limiter) call(ctx context.Context, domain string, list []Descriptor, what charge, d *Decision) error {
	c := l.enter()
	if c == nil {
		return ErrClosed
	}
	defer l.leave(c)
	if err := ctx.Err(); err != nil {
		return err
	}
	if what == take && l.admit(ctx, c, domain, list, d) {
		return nil
	}
	c.req.NoLease = true
	if err := c.prepare(domain, list, what); err != nil {
		return err
	}
	if err := l.decide(ctx, c, d); err != nil {
		return err
	}
	if what == giveBack && c.resp.Uncounted {
		return fmt.Errorf("%w: the store does not answer, and the units are not given back", ErrUnavailable)
	}
	return nil
}

// Reset forgets the counters that the descriptors are counted under, as if nobody had asked
// before. Requests in flight stay counted.
func (l *Limiter) Reset(ctx context.Context, domain string, list ...Descriptor) error {
	c := l.enter()
	if c == nil {
		return ErrClosed
	}
	defer l.leave(c)
	if err := c.prepare(domain, list, take); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if err := l.service.Reset(ctx, &c.req); err != nil {
		return fmt.Errorf("headgate: reset: %w", err)
	}
	return nil
}
