package e2e

import (
	"testing"

	"github.com/headgate-rls/headgate/test/collector"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestSpansJoinEnvoysTrace: a client's request, Envoy's call to headgate, the decision and the call
// to the store are spans of one trace, each below the one before. The collector is a test's own;
// Envoy's exporter and headgate's are real.
func TestSpansJoinEnvoysTrace(t *testing.T) {
	testenv.Require(t, "envoy-"+envoyVersions[0])
	for _, name := range []string{"unary", "transport" + onGRPC} {
		t.Run(name, func(t *testing.T) {
			c := collector.Start(t, nil)
			t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+c.HTTP)
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
			rules := writeFile(t, "rules.yaml",
				"domain: e2e\ndescriptors: [{key: key, rate_limit: {unit: hour, requests_per_unit: 1}}]")
			s := startService(t, "--rules", rules, "--backend", "memory://")
			f := startFront(t, envoyVersions[0], setup{Services: []string{s.GRPC}, Tracing: c.GRPC})
			const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
			insideHour()
			for range 2 {
				f.Get("/", "x-key", "secret value", "traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
			}
			refused := c.Await(func(s collector.Span) bool { return s.Attributes["headgate.result"] == "over_limit" })
			if refused.TraceID != trace || refused.Service != "headgate" || refused.Attributes["headgate.rule"] != "e2e/key" {
				t.Errorf("%+v", refused)
			}
			call := c.Await(func(s collector.Span) bool { return s.SpanID == refused.ParentID })
			if call.Service != "envoy" || call.TraceID != trace {
				t.Errorf("the decision is below %+v", call)
			}
			request := c.Await(func(s collector.Span) bool { return s.SpanID == call.ParentID })
			if request.Service != "envoy" || request.ParentID != "00f067aa0ba902b7" {
				t.Errorf("Envoy's call is below %+v", request)
			}
			if take := c.Await(func(s collector.Span) bool { return s.ParentID == refused.SpanID }); take.Name != "Take" {
				t.Errorf("below the decision is %+v", take)
			}
		})
	}
}
