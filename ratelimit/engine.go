package ratelimit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/insight"
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
	unknown   minutely // domains in the log
	unmatched minutely // shapes in the log
	coverage  *insight.Coverage
	reloads   insight.Reloads
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
	if err := e.conf.Panics.Do("backend", func() { be.Take(ctx, takes, out) }); err != nil {
		backends.Fail(out, fmt.Errorf("%w: %w", backends.ErrUnavailable, err))
	}
}

// logFailure logs a failure of the backend, at most once per second and reason.
func (e *engine) logFailure(req *Request, what string, err error) {
	if ok, skipped := e.failures.Allow(what); ok {
		e.conf.Log.Error("decision degraded", "reason", what, "domain", req.Domain, "error", err,
			"request_id", req.RequestID, "trace_id", traceID(req), "suppressed", skipped)
	}
}

// traceID is the trace that a request is part of, for the log; "" if that is not known.
func traceID(req *Request) string {
	if req.Parent == nil {
		return ""
	}
	return req.Parent.Trace()
}

// abandon ends the leases that resp grants in the background.
func (e *engine) abandon(resp *Response) {
	for i := range resp.granted {
		e.leases.Abandon(&resp.granted[i])
	}
	resp.granted = resp.granted[:0]
}
