package ratelimit_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/tracing"
)

const tracedRules = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: 1}}\n"

// setupTraced makes a service whose spans are recorded.
func setupTraced(t *testing.T, change ...func(*ratelimit.Config)) (*ratelimit.Harness, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder),
		sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())))
	return ratelimit.Setup(t, tracedRules, append(change, ratelimit.Unlogged,
		func(c *ratelimit.Config) { c.Tracer = tracing.OpenTelemetry(provider.Tracer("test")) })...), recorder
}

func messageOf(domain, value string) []byte {
	request := ratelimit.ProtoRequest(domain, "k="+value)
	message, err := proto.Marshal(request)
	if err != nil {
		panic(err)
	}
	return message
}

func attributes(s sdk.ReadOnlySpan) map[string]string {
	m := map[string]string{}
	for _, kv := range s.Attributes() {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

// TestEachCallOfASliceHasSpansOfItsOwn: calls that are decided together belong to the traces of
// their callers, each with a child for the call to the backend. A caller that is not sampled has
// none. Spans keep nothing of messages, whose memory is used again.
func TestEachCallOfASliceHasSpansOfItsOwn(t *testing.T) {
	h, recorder := setupTraced(t)
	handler := transport.Handler(h.Service, transport.ShouldRateLimit, func(time.Duration, ratelimit.CallResult, int) {})
	at := slices.Index(handler.Metadata, "traceparent")
	if at < 0 {
		t.Fatalf("the handler wants to see %q", handler.Metadata)
	}
	var calls []*unary.Call
	for i, flags := range []string{"01", "01", "00", "01"} {
		parent := fmt.Sprintf("00-%032x-%016x-%s", i+1, i+1, flags)
		values := make([]string, len(handler.Metadata))
		values[at] = parent
		calls = append(calls, &unary.Call{Message: messageOf("d", "v"), Metadata: values})
	}
	calls = append(calls, &unary.Call{Message: messageOf("no such domain", "v"), Metadata: make([]string, 7)})
	serveCalls(handler, calls)
	for _, c := range calls {
		for i := range c.Message {
			c.Message[i] = 'x'
		}
	}
	decisions := map[trace.TraceID]sdk.ReadOnlySpan{}
	var rules []string
	for _, s := range recorder.Ended() {
		if s.Name() == "ShouldRateLimit" {
			decisions[s.SpanContext().TraceID()] = s
			rules = append(rules, attributes(s)["headgate.result"]+" "+attributes(s)["headgate.rule"]+" "+
				attributes(s)["headgate.domain"])
		}
	}
	if want := "[ok  d over_limit d/k d over_limit d/k d ok  no such domain]"; fmt.Sprint(rules) != want {
		t.Errorf("%v, want %s", rules, want)
	}
	takes := 0
	for _, s := range recorder.Ended() {
		if s.Name() != "Take" {
			continue
		}
		takes++
		parent := decisions[s.SpanContext().TraceID()]
		if parent == nil || s.Parent().SpanID() != parent.SpanContext().SpanID() || attributes(s)["headgate.slice"] != "4" {
			t.Errorf("%v is not the child of a decision in a slice of 4", s)
		}
		if s.StartTime().Before(parent.StartTime()) || s.EndTime().After(parent.EndTime()) {
			t.Errorf("%v lasts longer than its parent", s)
		}
	}
	if takes != 3 {
		t.Errorf("%d calls to the backend have spans, want 3", takes)
	}
}

// TestSpanSaysWhyAPolicyAnswered: a call whose backend failed has the cause in both spans, and none
// of the backend's text, which may have addresses.
func TestSpanSaysWhyAPolicyAnswered(t *testing.T) {
	h, recorder := setupTraced(t)
	h.Fail(fmt.Errorf("%w: %w", backends.ErrUnavailable, errors.New("secret host")))
	handler := transport.Handler(h.Service, transport.ShouldRateLimit, func(time.Duration, ratelimit.CallResult, int) {})
	serveCalls(handler, []*unary.Call{{Message: messageOf("d", "v")}})
	spans := recorder.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	take, decision := spans[0], spans[1]
	if s := take.Status(); s.Code != codes.Error || s.Description != "backend_error" {
		t.Errorf("the call to the backend has status %v", s)
	}
	if a := attributes(decision); a["headgate.degraded"] != "true" || a["headgate.cause"] != "backend_error" ||
		decision.Status().Code != codes.Unset {
		t.Errorf("%v %v", a, decision.Status())
	}
}

// TestNoTracerReadsNoHeaders: a service without a tracer asks for no trace headers.
func TestNoTracerReadsNoHeaders(t *testing.T) {
	h := ratelimit.Setup(t, tracedRules, ratelimit.Unlogged)
	if handler := transport.Handler(h.Service, transport.ShouldRateLimit,
		func(time.Duration, ratelimit.CallResult, int) {}); len(handler.Metadata) != 5 || h.Traced() {
		t.Errorf("the handler wants to see %q", handler.Metadata)
	}
}
