package ratelimit

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Names of request metadata by which a caller says of which trace a call is (W3C Trace
// Context).
const (
	MetadataTraceParent = "traceparent"
	MetadataTraceState  = "tracestate"
)

// Traced reports whether spans are made of calls, so that transports need not read trace
// headers if nobody wants them.
func (s *Service) Traced() bool { return s.conf.Tracer != nil }

// SetTrace makes the span of those headers the parent of the call's. It leaves out headers that
// are too long or malformed: they may come from a client's own client, and must not fail a call.
func (r *Request) SetTrace(parent, state string) {
	r.Parent = nil
	if parent == "" || len(parent) > maxMetadata {
		return
	}
	if len(state) > maxMetadata {
		state = ""
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(),
		traceHeaders{strings.Clone(parent), strings.Clone(state)})
	if caller := trace.SpanContextFromContext(ctx); caller.IsValid() {
		r.Parent = &caller
	}
}

// traceHeaders are the values of both trace headers.
type traceHeaders struct{ parent, state string }

func (h traceHeaders) Get(name string) string {
	if name == MetadataTraceParent {
		return h.parent
	}
	return h.state
}

func (traceHeaders) Set(string, string) {}

func (traceHeaders) Keys() []string { return []string{MetadataTraceParent, MetadataTraceState} }

// Names of spans. The same names are in docs/operations.md.
const (
	decisionSpan = "ShouldRateLimit"
	storeSpan    = "Take"
)

// times are when a slice of calls was begun, when its ops were known, and when the backend had
// answered.
type times struct{ began, planned, answered time.Time }

// traceCall makes the spans of a call: one of the decision, and below it one of the call to the backend. All is known
// by then, so nothing of a span is on the way of a decision, and nothing but the clock is read for a call that is not
// sampled.
func traceCall(b *batch, c *call) {
	conf := &b.engine.conf
	kind, ctx := trace.SpanKindServer, context.Background()
	if c.req.InProcess {
		kind = trace.SpanKindInternal
	}
	if c.req.Parent != nil {
		ctx = trace.ContextWithSpanContext(ctx, *c.req.Parent)
	}
	ctx, span := conf.Tracer.Start(ctx, decisionSpan, trace.WithSpanKind(kind), trace.WithTimestamp(b.times.began))
	if !span.IsRecording() {
		return
	}
	if c.takeIndex >= 0 {
		c.traceTake(ctx, b)
	}
	c.describe(span)
	span.End()
}

// traceTake makes the span of the call to the backend, as the call's caller saw it.
func (c *call) traceTake(ctx context.Context, b *batch) {
	conf := &b.engine.conf
	_, span := conf.Tracer.Start(ctx, storeSpan, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(b.times.planned), trace.WithAttributes(
			attribute.String("headgate.backend", conf.Caps.Name),
			attribute.Int("headgate.limits", len(c.ops)),
			attribute.Int("headgate.slice", len(b.takes)),
		))
	if c.cause != nil {
		span.SetStatus(codes.Error, c.cause.label)
	}
	span.End(trace.WithTimestamp(b.times.answered))
}

// maxTraced bounds the texts of callers that are in spans, in bytes.
const maxTraced = 128

// describe says what became of the call. A span has no values of descriptors, which may be personal.
func (c *call) describe(span trace.Span) {
	result := c.resp.Result()
	span.SetAttributes(
		attribute.String("headgate.domain", traced(c.req.Domain)),
		attribute.Int("headgate.descriptors", len(c.req.Descriptors)),
		attribute.String("headgate.result", result.String()),
		attribute.Bool("headgate.degraded", c.resp.Degraded),
	)
	if c.resp.OverLimit {
		span.SetAttributes(attribute.String("headgate.rule", c.refuses.limit.name))
	}
	if c.cause != nil {
		span.SetAttributes(attribute.String("headgate.cause", c.cause.label))
	}
	if c.resp.Err != nil {
		span.SetStatus(codes.Error, traced(c.resp.Err.Message))
	}
}

// traced returns a copy of a caller's text, since its message is used again.
func traced(s string) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), maxTraced)]), "")
}
