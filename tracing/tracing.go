package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate-rls/headgate/ratelimit"
)

// Names of spans. The same names are in docs/operations.md.
const (
	decisionSpan = "ShouldRateLimit"
	storeSpan    = "Take"
)

// A Tracer makes spans of decisions: it goes into headgate.Options.
type Tracer struct{ tracer trace.Tracer }

// OpenTelemetry returns what makes spans by a tracer of OpenTelemetry. Ending a span must not block.
func OpenTelemetry(tracer trace.Tracer) Tracer { return Tracer{tracer} }

// parent is a span of a caller.
type parent struct{ trace.SpanContext }

func (p *parent) Trace() string { return p.TraceID().String() }

// Caller returns the span in a context, or nil if the context has no span.
func (t Tracer) Caller(ctx context.Context) ratelimit.Span {
	if caller := trace.SpanContextFromContext(ctx); caller.IsValid() {
		return &parent{caller}
	}
	return nil
}

// maxHeader bounds each trace header, in bytes.
const maxHeader = 256

// withParent returns a context with the span that the headers traceparent and tracestate name, or none. It ignores
// headers that are too long or malformed: they may come from a client's own client.
func withParent(ctx context.Context, traceParent, state string) context.Context {
	if traceParent == "" || len(traceParent) > maxHeader {
		return ctx
	}
	if len(state) > maxHeader {
		state = ""
	}
	return propagation.TraceContext{}.Extract(ctx, headers{strings.Clone(traceParent), strings.Clone(state)})
}

// headers are the values of both trace headers.
type headers struct{ parent, state string }

func (h headers) Get(name string) string {
	if name == ratelimit.MetadataTraceParent {
		return h.parent
	}
	return h.state
}

func (headers) Set(string, string) {}

func (headers) Keys() []string {
	return []string{ratelimit.MetadataTraceParent, ratelimit.MetadataTraceState}
}

// Trace makes the spans of a call: one of the decision, and below it one of the call to the store. A call that is not
// sampled has none.
func (t Tracer) Trace(c ratelimit.Traced) {
	kind, ctx := trace.SpanKindServer, context.Background()
	if c.InProcess {
		kind = trace.SpanKindInternal
	}
	if p, ok := c.Caller.(*parent); ok {
		ctx = trace.ContextWithSpanContext(ctx, p.SpanContext)
	} else {
		ctx = withParent(ctx, c.TraceParent, c.TraceState)
	}
	ctx, span := t.tracer.Start(ctx, decisionSpan, trace.WithSpanKind(kind), trace.WithTimestamp(c.Began))
	if !span.IsRecording() {
		return
	}
	if c.Limits > 0 {
		t.traceTake(ctx, &c)
	}
	describe(span, &c)
	span.End()
}

// traceTake makes the span of the call to the store, as the call's caller saw it.
func (t Tracer) traceTake(ctx context.Context, c *ratelimit.Traced) {
	_, span := t.tracer.Start(ctx, storeSpan, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(c.Planned), trace.WithAttributes(
			attribute.String("headgate.backend", c.Backend),
			attribute.Int("headgate.limits", c.Limits),
			attribute.Int("headgate.slice", c.Slice),
		))
	if c.Cause != "" {
		span.SetStatus(codes.Error, c.Cause)
	}
	span.End(trace.WithTimestamp(c.Answered))
}

// describe says what became of the call. A span has no values of descriptors, which may be personal.
func describe(span trace.Span, c *ratelimit.Traced) {
	span.SetAttributes(
		attribute.String("headgate.domain", bounded(c.Domain)),
		attribute.Int("headgate.descriptors", c.Descriptors),
		attribute.String("headgate.result", c.Result),
		attribute.Bool("headgate.degraded", c.Degraded),
	)
	if c.Rule != "" {
		span.SetAttributes(attribute.String("headgate.rule", c.Rule))
	}
	if c.Cause != "" {
		span.SetAttributes(attribute.String("headgate.cause", c.Cause))
	}
	if c.Err != "" {
		span.SetStatus(codes.Error, bounded(c.Err))
	}
}

// maxText bounds the texts of callers that are in spans, in bytes.
const maxText = 128

// bounded returns a copy of a caller's text, since its message is used again.
func bounded(s string) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), maxText)]), "")
}
