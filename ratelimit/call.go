package ratelimit

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// An engine is what the calls of a service share.
type engine struct {
	conf      Config
	rules     atomic.Pointer[ruleset]
	overrides overrideCache
	leases    *leases.Tracker
	refusals  background.LogLimit
	failures  background.LogLimits
	warnings  background.LogLimit // of limits that are nearly used up
	warned    *warnedKeys
	later     laterNote
	unknown   minutely // domains in the log
	unknowns  unknownDomains
	unmatched minutely // shapes in the log
	coverage  *Coverage
	known     atomic.Pointer[costTable] // see costs
	refused   *refusedKeys              // nil without AsReference
}

// snapshot returns the policies in force.
func (e *engine) snapshot() *policies.Snapshot {
	if e.conf.Policies == nil {
		return nil
	}
	return e.conf.Policies.Snapshot()
}

// failuresPerSecond is how many failures of one kind are logged in a second.
const failuresPerSecond = 1

// ask asks a backend once, and waits until the caller's deadline less a margin.
// It returns when it asked, zero for a backend without I/O.
func (e *engine) ask(ctx context.Context, be backends.Backend, takes []limit.Request,
	out []limit.Verdict) (now time.Time) {
	if e.conf.Caps.Local {
		e.askGuarded(ctx, be, takes, out)
		return now
	}
	now = time.Now()
	deadline, ok := ctx.Deadline()
	if ok {
		deadline = deadline.Add(-max(e.conf.Margin, deadline.Sub(now)/10))
	} else {
		deadline = now.Add(e.conf.Timeout)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	e.askGuarded(ctx, be, takes, out)
	return now
}

// askGuarded asks a backend. A panic in it fails all requests.
func (e *engine) askGuarded(ctx context.Context, be backends.Backend, takes []limit.Request, out []limit.Verdict) {
	defer func() {
		if p := recover(); p != nil {
			backends.Fail(out, fmt.Errorf("%w: %w", backends.ErrUnavailable, e.conf.Panics.Report("backend", p)))
		}
	}()
	be.Take(ctx, takes, out)
}

// logFailure logs a failure of the backend, at most once per second and reason.
func (e *engine) logFailure(req *Request, what string, err error) {
	if e.noteLater(req, what, err) {
		return
	}
	if ok, skipped := e.failures.Allow(what); ok {
		e.conf.Log.Error("decision degraded", "reason", what, "domain", req.Domain, "error", err,
			"request_id", req.RequestID, "trace_id", traceID(req), "suppressed", skipped)
	}
}

// traceID returns the ID of the trace that a request belongs to, for the log; "" if it is not known.
func traceID(req *Request) string {
	if req.Parent != nil {
		return req.Parent.Trace()
	}
	parts := strings.SplitN(req.TraceParent, "-", 4) // version, trace, span, flags: W3C Trace Context
	if len(parts) < 4 || !isHex(parts[0], 2) || !isHex(parts[1], 32) || !isHex(parts[2], 16) ||
		strings.Trim(parts[1], "0") == "" {
		return ""
	}
	return strings.Clone(parts[1])
}

func isHex(s string, n int) bool { return len(s) == n && strings.Trim(s, "0123456789abcdef") == "" }

// Abandon ends the leases that resp grants, because its caller does not receive
// it. It does so in the background.
func (e *engine) Abandon(resp *Response) {
	for i := range resp.granted {
		e.leases.Abandon(&resp.granted[i])
	}
	resp.granted = resp.granted[:0]
}

// A Batch is the requests of one Decide, and the memory for them. Batches are
// pooled.
type Batch struct {
	engine *engine
	rules  *ruleset
	// policies are those in force, for all calls of the batch.
	policies *policies.Snapshot

	calls    []Call
	takes    []limit.Request
	returns  bool // some call has leases that came back
	verdicts []limit.Verdict
	asked    time.Time // when the backend was asked, zero for one without I/O
	at       int64     // see instant; 0: not known yet
	tally    tally
	byPolicy policyTallies
	times    times // of a service with a tracer
}

// A Call is one request on its way to its response.
type Call struct {
	Request   *Request
	Response  *Response
	Decisions []Decision   // one per descriptor
	Ops       []limit.Op   // of all decisions, in order
	views     []*LimitView // of ops
	takeIndex int          // index into batch.takes, -1 if there are no ops

	Verdict   *limit.Verdict            // about ops; nil if there are none
	cause     *Cause                    // why policies answer, nil if they do not
	strictest descriptors.FailurePolicy // of the policies that answer
	failure   *Error                    // fails the call by policy, else nil
	choices   []choice                  // between decisions
	Refuses   *Decision                 // refuses the request, also where shadow mode admits it; nil if none does

	// Requests in flight.
	holder      string          // of the leases that the call gets
	lease       leases.Lease    // that the call gets
	returns     []leases.Return // leases that came back with the call
	firstReturn int             // index into batch.takes of the first of returns that has ops

	// Reservations.
	estimate      int64      // of the call's cost, 0 if it brings none
	units         int64      // that it has reserved
	reserved      []reserved // that the call asks for
	ends          []tokenEnd // of returns
	settling      []settling
	firstSettling int // index into batch.takes
}

// maxRemaining is what is left where nothing limits.
const maxRemaining = math.MaxUint32

// start matches every request and collects the requests to the backend.
func (b *Batch) start(engine *engine, reqs []*Request, resps []*Response) {
	b.engine, b.rules, b.policies = engine, engine.rules.Load(), engine.snapshot()
	b.calls = grow(b.calls, len(reqs))
	b.takes, b.returns, b.at = b.takes[:0], false, 0
	for i := range reqs {
		c := &b.calls[i]
		c.begin(reqs[i], resps[i])
		if p := reqs[i].proxy(); i == 0 || p != reqs[i-1].proxy() {
			engine.leases.HeardFrom(p)
		}
		if c.Response.Err = c.plan(b); c.Response.Err != nil {
			clear(c.Decisions)
			c.Decisions = c.Decisions[:0] // nothing is decided
			continue
		}
		c.addReturns(b)
		c.addSettlements(b)
		if len(c.Ops) > 0 {
			c.takeIndex = len(b.takes)
			b.takes = append(b.takes, limit.Request{Ops: c.Ops})
		}
	}
	if engine.conf.Tracer != nil {
		b.times.planned = time.Now()
	}
	b.ready()
}

// begin has c be about a request that nothing is known of.
func (c *Call) begin(req *Request, resp *Response) {
	c.Request, c.Response, c.takeIndex, c.holder = req, resp, -1, ""
	c.Verdict, c.cause, c.failure, c.Refuses = nil, nil, nil, nil
	c.Ops, c.views, c.returns, c.choices = c.Ops[:0], c.views[:0], c.returns[:0], c.choices[:0]
	c.estimate, c.units, c.reserved, c.ends, c.settling = 0, 0, c.reserved[:0], c.ends[:0], c.settling[:0]
	c.Response.reset(len(c.Request.Descriptors))
}

// ready makes room for verdicts, and sets the instants of requests.
func (b *Batch) ready() {
	b.verdicts = grow(b.verdicts, len(b.takes))
	if !b.engine.conf.Caps.ServerClock && len(b.takes) > 0 {
		now := b.engine.conf.Now()
		b.at = int64(now)
		for i := range b.takes {
			b.takes[i].At = now
		}
	}
}

// answer decides the call by its verdict, and fills its response.
func (c *Call) answer(ctx context.Context, b *Batch) {
	if c.Response.Err != nil {
		return
	}
	if len(c.returns) > 0 {
		c.settleReturns(b)
	}
	if len(c.settling) > 0 {
		c.noteSettlements(b)
	}
	if c.takeIndex >= 0 {
		c.Verdict = &b.verdicts[c.takeIndex]
		switch err := c.Verdict.Err; {
		case err != nil:
			c.abandonUnclear(b, err)
			c.Verdict = c.degrade(ctx, b, err)
		case c.Verdict.Recalled:
			c.abandonUnclear(b, backends.ErrUnavailable)
			c.cause, c.strictest = recalled, descriptors.FailDeny
		}
		c.hideExpiry(c.Verdict)
	}
	c.Refuses = c.conclusion(ctx, b)
	c.Response.OverLimit = c.Refuses != nil && !b.engine.conf.ShadowMode
	if c.failure != nil {
		c.Response.Err = c.failure
	}
	if v := c.Verdict; v != nil && v.Admitted && !c.Response.OverLimit {
		c.grant(b, v, c.Response.Degraded)
	}
}

// conclusion completes the decisions, and returns the one that refuses the request: of those out of quota mode the
// one with the longest wait. Those in quota mode refuse only if all of them do, and so do the candidates of a choice.
func (c *Call) conclusion(ctx context.Context, b *Batch) *Decision {
	var enforced, quota *Decision
	inQuota, overQuota := 0, 0
	for i := range c.Decisions {
		d := &c.Decisions[i]
		c.conclude(b, d)
		over := d.status.OverLimit
		switch {
		case d.candidate: // see concludeChoice
		case d.unlimited && b.engine.conf.AsReference:
		case b.engine.conf.QuotaMode || (d.view != nil && d.view.quota):
			inQuota++
			if over {
				overQuota++
				if d.outweighs(quota) {
					quota = d
				}
			}
		case over && d.outweighs(enforced):
			enforced = d
		}
	}
	for n := range c.choices {
		if d := c.concludeChoice(&c.choices[n]); d != nil && d.outweighs(enforced) {
			enforced = d
		}
	}
	if enforced == nil && inQuota > 0 && overQuota == inQuota {
		if !b.engine.conf.AsReference {
			c.refund(ctx, b, c.Verdict)
		}
		return quota
	}
	return enforced
}

// release drops what a pooled batch must not keep in memory.
func (b *Batch) release() {
	for i := range b.calls {
		c := &b.calls[i]
		if i >= keptLarge && c.Request.Size > smallMessage {
			*c = Call{}
			continue
		}
		c.Request, c.Response, c.Verdict, c.Refuses = nil, nil, nil, nil
		clear(c.Decisions)
		for n := range c.choices {
			c.choices[n].name = ""
		}
		clear(c.Ops)
		clear(c.views)
		clear(c.lease.Held)
		clear(c.lease.Reserved)
		clear(c.ends)
		clear(c.settling)
		for j := range c.returns {
			c.returns[j].Clear()
		}
	}
	clear(b.takes)
	b.engine, b.rules, b.policies = nil, nil, nil
}

// grow returns s with length n, keeping the elements' memory.
func grow[T any](s []T, n int) []T {
	if n > cap(s) {
		s = append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

// Pools keep little of messages larger than smallMessage, in bytes: none of their
// strings, and the memory of only the first keptLarge requests of a slice.
const (
	smallMessage = 2 << 10
	keptLarge    = 32
)

// refund gives back what the backend charged for a request that quota mode
// refuses afterwards: it refuses when all quotas are spent, which no single limit
// knows.
func (c *Call) refund(ctx context.Context, b *Batch, v *limit.Verdict) {
	if v == nil || v.Err != nil || v.Recalled || b.engine.conf.ShadowMode {
		return
	}
	be, back := b.engine.conf.Backend, limit.Request{At: b.takes[c.takeIndex].At}
	if c.Response.Degraded {
		be, back.At = b.engine.conf.Local, v.At
	}
	passed, until := b.sinceAsked(back.At), maxRefund
	for i := range c.Ops {
		op := c.Ops[i]
		if !v.Charged(c.Ops, i) || op.Each || op.Cost <= 0 {
			continue
		}
		op.Choice = limit.Choice{}
		left := windowLeft(op.Limit, v.At)
		if left <= passed {
			continue // it would give units of the next window
		}
		op.Cost = -op.Cost
		back.Ops, until = append(back.Ops, op), min(until, left)
	}
	if len(back.Ops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, until-passed)
	defer cancel()
	out := make([]limit.Verdict, 1)
	b.engine.ask(ctx, be, []limit.Request{back}, out)
	if err := out[0].Err; err != nil {
		b.engine.logFailure(c.Request, "refund failed", err)
		c.abandonUnclear(b, err)
	}
}

// maxRefund is how long units of limits without windows can be given back.
const maxRefund = time.Hour

// sinceAsked returns an upper bound of the time since the backend was asked. at is
// the instant of the requests, 0 if the backend has a clock of its own.
func (b *Batch) sinceAsked(at limit.Instant) time.Duration {
	if at == 0 {
		return time.Since(b.asked)
	}
	return time.Duration(b.engine.conf.Now()-at) * time.Microsecond
}

// windowLeft returns for how long units that l counted at an instant can be given
// back: until their window ends.
func windowLeft(l *limit.Limit, at limit.Instant) time.Duration {
	if l.Is(limit.Aligned) {
		return l.WindowEnd(at).Sub(at)
	}
	return maxRefund
}
