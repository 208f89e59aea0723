package ratelimit

import (
	"context"
	"time"
)

// Names of request metadata by which a caller says of which trace a call is (W3C Trace
// Context).
const (
	MetadataTraceParent = "traceparent"
	MetadataTraceState  = "tracestate"
)

// A Span is a caller's, below which the spans of its call are.
type Span interface {
	// Trace returns the ID of its trace, for the log.
	Trace() string
}

// A Tracer makes spans of calls. Package tracing has it for OpenTelemetry.
type Tracer interface {
	// Caller returns the span in a context, or nil if the context has no span.
	Caller(context.Context) Span
	// Trace makes the spans of a call. It must not block, and keeps nothing of the texts.
	Trace(Traced)
}

// Traced is what a [Tracer] knows of a call. All is known of it then: nothing of a span is on the way of a decision.
type Traced struct {
	Caller                   Span   // nil if the caller has no span
	TraceParent, TraceState  string // headers of the call, possibly malformed
	InProcess                bool
	Began, Planned, Answered time.Time // the last two are when the store was asked, and had answered

	Backend string
	Limits  int // that the store was asked about; 0 if it was not asked
	Slice   int // calls that asked the store together

	Domain      string
	Descriptors int
	Result      string
	Degraded    bool   // a failure policy answered
	Rule        string // that refused the request, or ""
	Cause       string // why the store gave no answer, or ""
	Err         string // why the call failed, or ""
}

// Traced reports whether spans are made of calls, so that transports need not read trace
// headers if nobody wants them.
func (s *Service) Traced() bool { return s.conf.Tracer != nil }

// times are when a slice of calls was begun, when its ops were known, and when the backend had
// answered.
type times struct{ began, planned, answered time.Time }

// traceCall hands a call to the tracer.
func traceCall(b *Batch, c *Call) {
	t := Traced{Caller: c.Request.Parent, TraceParent: c.Request.TraceParent,
		TraceState: c.Request.TraceState, InProcess: c.Request.InProcess, Began: b.times.began, Planned: b.times.planned,
		Answered: b.times.answered, Backend: b.engine.conf.Caps.Name, Slice: len(b.takes), Domain: c.Request.Domain,
		Descriptors: len(c.Request.Descriptors), Result: c.Response.Result().String(), Degraded: c.Response.Degraded}
	if c.takeIndex >= 0 {
		t.Limits = len(c.Ops)
	}
	if c.Response.OverLimit {
		t.Rule = c.Refuses.Limit.Name
	}
	if c.cause != nil {
		t.Cause = c.cause.Label
	}
	if c.Response.Err != nil {
		t.Err = c.Response.Err.Message
	}
	b.engine.conf.Tracer.Trace(t)
}
