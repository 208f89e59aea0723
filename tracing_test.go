package headgate

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate-rls/headgate/tracing"
)

// TestSpansAreBelowTheCallersSpan: decisions are children of the span in the context, and the calls
// to the store theirs; a call without a span begins a trace, and one that is not sampled has none.
func TestSpansAreBelowTheCallersSpan(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	l := open(t, func(o *Options) { o.Tracer = tracing.OpenTelemetry(provider.Tracer("test")) })
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), parent)

	lease, _, err := l.Acquire(ctx, "d", Describe("user", "a"))
	if err != nil {
		t.Fatal(err)
	}
	lease.Release()
	list := spans.GetSpans()
	if len(list) != 2 || list[1].Name != "ShouldRateLimit" || list[1].Parent.SpanID() != parent.SpanID() ||
		list[1].SpanKind != trace.SpanKindInternal ||
		list[0].Name != "Take" || list[0].Parent.SpanID() != list[1].SpanContext.SpanID() ||
		list[0].SpanContext.TraceID() != parent.TraceID() {
		t.Errorf("with a sampled span: %+v", list)
	}

	spans.Reset()
	if _, err := l.Check(trace.ContextWithSpanContext(t.Context(), parent.WithTraceFlags(0)), "d",
		Describe("user", "a")); err != nil {
		t.Fatal(err)
	}
	if n := len(spans.GetSpans()); n != 0 {
		t.Errorf("%d spans below one that is not sampled", n)
	}
	if _, err := l.Check(t.Context(), "d", Describe("user", "a")); err != nil {
		t.Fatal(err)
	}
	if list = spans.GetSpans(); len(list) != 2 || list[1].Parent.IsValid() ||
		list[1].SpanContext.TraceID() == parent.TraceID() {
		t.Errorf("without a span: %+v", list)
	}
}
