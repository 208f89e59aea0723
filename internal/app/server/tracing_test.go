package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"

	"github.com/headgate-rls/headgate/test/collector"
	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

const (
	callersTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan   = "00f067aa0ba902b7"
	callersParent = "00-" + callersTrace + "-" + callersSpan + "-01"
	notSampled    = "00-" + callersTrace + "-" + callersSpan + "-00"
)

// traceTo has servers of the test send spans to a collector.
func traceTo(t *testing.T, protocol, endpoint string) {
	t.Helper()
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
}

// askWith asks the server at addr with metadata.
func askWith(t *testing.T, s *serving.Server, addr string, headers ...string) *rls.RateLimitResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := rls.NewRateLimitServiceClient(s.Dial(addr)).ShouldRateLimit(metadata.AppendToOutgoingContext(ctx,
		headers...), exampleRequest())
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// childOf accepts a span of a name below another one.
func childOf(parent, name string) func(collector.Span) bool {
	return func(s collector.Span) bool { return s.ParentID == parent && s.Name == name }
}

// TestSpansOfCallsReachTheCollector: over each transport, and by either protocol, a call's
// decision and its call to the store become spans of the caller's trace.
func TestSpansOfCallsReachTheCollector(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		onTransports(t, func(t *testing.T, transport []string) {
			c := collector.Start(t, nil)
			endpoint := map[string]string{"grpc": "http://" + c.GRPC, "http/protobuf": "http://" + c.HTTP}[protocol]
			traceTo(t, protocol, endpoint)
			t.Setenv("OTEL_SERVICE_NAME", "limits of shop")
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=pay%2Cments,deployment=blue")
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=to%20ken")
			s := startServe(t, transport...)
			askWith(t, s, s.GRPC, "traceparent", callersParent, "tracestate", "vendor=1")
			decision := c.Await(childOf(callersSpan, "ShouldRateLimit"))
			take := c.Await(childOf(decision.SpanID, "Take"))
			if decision.TraceID != callersTrace || take.TraceID != callersTrace || decision.TraceState != "vendor=1" {
				t.Errorf("spans of another trace: %+v, %+v", decision, take)
			}
			if decision.Kind != v1.Span_SPAN_KIND_SERVER || take.Kind != v1.Span_SPAN_KIND_CLIENT {
				t.Errorf("kinds %v, %v", decision.Kind, take.Kind)
			}
			a := decision.Attributes
			if a["headgate.domain"] != "example" || a["headgate.result"] != "ok" ||
				take.Attributes["headgate.backend"] != "memory" {
				t.Errorf("attributes %v, %v", a, take.Attributes)
			}
			if decision.Service != "limits of shop" || decision.Resource["team"] != "pay,ments" ||
				decision.Resource["deployment"] != "blue" {
				t.Errorf("resource %v", decision.Resource)
			}
			if !slices.Contains(c.Tokens(), "to ken") {
				t.Errorf("the collector got tokens %q", c.Tokens())
			}
			if strings.Contains(fmt.Sprint(c.Spans()), "alice") {
				t.Error("spans have values of descriptors")
			}
			if start, end := take.Start, take.End; start.Before(decision.Start) || end.After(decision.End) || end.Before(start) {
				t.Errorf("the call to the store (%v to %v) is not within the decision (%v to %v)", start, end, decision.Start,
					decision.End)
			}
			if strings.Contains(s.Log.String(), "to ken") || strings.Contains(s.Log.String(), "to%20ken") {
				t.Errorf("the log has the token:\n%s", s.Log)
			}
		})
	}
}

// TestRefusalsNameTheirRuleInSpans: the span of a refusal says which rule refused, also over JSON.
func TestRefusalsNameTheirRuleInSpans(t *testing.T) {
	c := collector.Start(t, nil)
	traceTo(t, "grpc", "http://"+c.GRPC)
	s := startServe(t)
	for range 12 {
		req, err := http.NewRequest(http.MethodPost, "http://"+s.HTTP+"/json",
			strings.NewReader(`{"domain":"example","descriptors":[{"entries":[{"key":"client","value":"bob"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("traceparent", callersParent)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	span := c.Await(func(s collector.Span) bool { return s.Attributes["headgate.result"] == "over_limit" })
	if span.ParentID != callersSpan || !strings.HasPrefix(span.Attributes["headgate.rule"], "example/client") {
		t.Errorf("%+v", span)
	}
}

// TestCallersChooseNoSpans: a caller whose trace is not sampled gets no spans, one with malformed
// headers gets an answer and a trace of its own, and one with none too.
func TestCallersChooseNoSpans(t *testing.T) {
	onTransports(t, func(t *testing.T, transport []string) {
		c := collector.Start(t, nil)
		traceTo(t, "grpc", "http://"+c.GRPC)
		s := startServe(t, transport...)
		for _, headers := range [][]string{
			{"traceparent", notSampled}, {"traceparent", "00-zz-01"}, {"traceparent", strings.Repeat("0", 4000)},
			{"traceparent", callersParent, "traceparent", callersParent},
			{"traceparent", callersParent, "tracestate", strings.Repeat("x", 4000)}, {},
		} {
			askWith(t, s, s.GRPC, headers...)
		}
		var roots, children int
		for deadline := time.Now().Add(30 * time.Second); roots+children < 5 && time.Now().Before(deadline); time.Sleep(
			10 * time.Millisecond) {
			roots, children = 0, 0
			for _, span := range c.Spans() {
				switch {
				case span.Name != "ShouldRateLimit":
				case span.ParentID == "":
					roots++
				default:
					children++
				}
			}
		}
		if roots != 4 || children != 1 {
			t.Errorf("%d calls with a trace of their own, want 4; %d in the caller's, want 1: %+v", roots, children, c.Spans())
		}
	})
}

// TestCollectorOverTLS: the collector is asked for a certificate of the authority, and is shown one.
func TestCollectorOverTLS(t *testing.T) {
	certs := testenv.TestCerts(t)
	pair, err := tls.LoadX509KeyPair(certs.Server.CertFile, certs.Server.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	authority := clientTLS(t, certs, nil).RootCAs
	c := collector.Start(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: authority,
		ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"}})
	for protocol, addr := range map[string]string{"grpc": c.GRPC, "http/protobuf": c.HTTP} {
		t.Run(protocol, func(t *testing.T) {
			traceTo(t, protocol, "https://"+addr)
			t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", certs.CAFile)
			t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", certs.Client.CertFile)
			t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", certs.Client.KeyFile)
			t.Setenv("OTEL_SERVICE_NAME", "over "+protocol)
			s := startServe(t)
			askWith(t, s, s.GRPC)
			c.Await(func(s collector.Span) bool { return s.Service == "over "+protocol })
		})
	}
}

// TestStrangeAuthorityGetsNoSpans: a collector with a certificate of somebody else gets nothing.
func TestStrangeAuthorityGetsNoSpans(t *testing.T) {
	theirs, ours := testenv.TestCerts(t), testenv.TestCerts(t)
	pair, err := tls.LoadX509KeyPair(theirs.Server.CertFile, theirs.Server.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	c := collector.Start(t, &tls.Config{Certificates: []tls.Certificate{pair}})
	traceTo(t, "http/protobuf", "https://"+c.HTTP)
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", ours.CAFile)
	s := startServe(t)
	askWith(t, s, s.GRPC)
	awaitLog(t, s, "could not send spans to the collector")
	if spans := c.Spans(); len(spans) > 0 {
		t.Errorf("%+v", spans)
	}
}

func awaitLog(t *testing.T, s *serving.Server, text string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(s.Log.String(), text); time.Sleep(
		10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say %q:\n%s", text, s.Log)
		}
	}
}

// badCollectors are collectors that take no spans. Each returns an endpoint.
var badCollectors = map[string]func(t *testing.T) (endpoint string){
	"is away": func(t *testing.T) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		return "http://" + l.Addr().String()
	},
	"accepts and reads nothing": func(t *testing.T) string {
		l, err := net.Listen("tcp", "127.0.0.1:0") // connections wait in its queue
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return "http://" + l.Addr().String()
	},
	"never answers": nil, // see below: it depends on the protocol
}

// TestBadCollectorStallsNothing: whatever a collector does, calls are answered as ever while more
// spans are made than the queue holds, and the server ends in time.
func TestBadCollectorStallsNothing(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		for name, bad := range badCollectors {
			t.Run(protocol+" "+name, func(t *testing.T) {
				var endpoint string
				if bad != nil {
					endpoint = bad(t)
				} else {
					c := collector.StartStalled(t)
					endpoint = map[string]string{"grpc": "http://" + c.GRPC, "http/protobuf": "http://" + c.HTTP}[protocol]
				}
				traceTo(t, protocol, endpoint)
				t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
				t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
				s := startServe(t)
				conn := rls.NewRateLimitServiceClient(s.Dial(s.GRPC))
				for range 200 {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a stall would be for ever
					if _, err := conn.ShouldRateLimit(ctx, exampleRequest()); err != nil {
						t.Fatal(err)
					}
					cancel()
				}
				if _, page := s.Get(s.Debug, "/metrics"); !strings.Contains(page, "headgate_trace_spans_total 400") ||
					!strings.Contains(page, "headgate_trace_sent_spans_total 0") {
					t.Errorf("the metrics do not say that 400 spans were made and none sent:\n%s", metricLines(page, "headgate_trace"))
				}
				start := time.Now()
				s.Stop()
				s.Ends(20 * time.Second)
				if took := time.Since(start); took > 10*time.Second { // two seconds, and what a busy machine adds
					t.Errorf("the end took %v", took)
				}
				awaitNoExporter(t)
				if log := s.Log.String(); !strings.Contains(log, "the collector did not take") &&
					!strings.Contains(log, "could not send spans") {
					t.Errorf("the log does not say that spans were lost:\n%s", s.Log)
				}
			})
		}
	}
}

// awaitNoExporter waits until no goroutine sends spans any more.
func awaitNoExporter(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 4<<20)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		running := string(stacks[:runtime.Stack(stacks, true)])
		if !strings.Contains(running, "otel/sdk/trace") && !strings.Contains(running, "otlptrace") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("goroutines outlive the server:\n%s", running)
		}
	}
}

func metricLines(page, prefix string) string {
	lines := slices.DeleteFunc(strings.Split(page, "\n"), func(l string) bool { return !strings.HasPrefix(l, prefix) })
	return strings.Join(lines, "\n")
}

// TestSpansAreSentAtTheEnd: what waits when the server is stopped is sent.
func TestSpansAreSentAtTheEnd(t *testing.T) {
	c := collector.Start(t, nil)
	traceTo(t, "grpc", "http://"+c.GRPC)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
	s := startServe(t)
	askWith(t, s, s.GRPC)
	if spans := c.Spans(); len(spans) > 0 {
		t.Fatalf("%d spans were sent at once", len(spans))
	}
	s.Stop()
	s.Ends(20 * time.Second)
	if spans := c.Spans(); len(spans) != 2 {
		t.Errorf("%d spans arrived, want 2", len(spans))
	}
}

// TestTracingIsOffByDefault: without OTEL_TRACES_EXPORTER nothing is sent, wherever the collector
// is, and OTEL_SDK_DISABLED turns it off.
func TestTracingIsOffByDefault(t *testing.T) {
	for name, value := range map[string]string{"OTEL_TRACES_EXPORTER": "", "OTEL_SDK_DISABLED": "true"} {
		t.Run(name, func(t *testing.T) {
			c := collector.Start(t, nil)
			traceTo(t, "grpc", "http://"+c.GRPC)
			t.Setenv(name, value)
			s := startServe(t)
			askWith(t, s, s.GRPC, "traceparent", callersParent)
			if _, page := s.Get(s.Debug, "/metrics"); strings.Contains(page, "headgate_trace_") {
				t.Error("there are metrics of spans")
			}
			s.Stop()
			s.Ends(20 * time.Second)
			if n := c.Batches(); n > 0 {
				t.Errorf("%d requests reached the collector", n)
			}
		})
	}
}

// TestWrongTracingSettings: a variable with a value that means nothing is an error with its name,
// an unknown one a warning.
func TestWrongTracingSettings(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_TRACES_EXPORTER": "oltp", "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
		"OTEL_TRACES_SAMPLER":                "parentbased_ratio", "OTEL_TRACES_SAMPLER_ARG": "10%",
		"OTEL_RESOURCE_ATTRIBUTES":   "team",
		"OTEL_EXPORTER_OTLP_HEADERS": "secret", "OTEL_EXPORTER_OTLP_TIMEOUT": "10s", "OTEL_BSP_MAX_QUEUE_SIZE": "100000000",
		"OTEL_EXPORTER_OTLP_CLIENT_KEY": "key.pem", "OTEL_EXPORTER_OTLP_CERTIFICATE": "missing.pem",
		"OTEL_SDK_DISABLED": "yes",
	} {
		t.Run(name, func(t *testing.T) {
			traceTo(t, "grpc", "https://localhost:1")
			t.Setenv(name, value)
			text := startError(t, "--example")
			if part := strings.TrimPrefix(name, "OTEL_EXPORTER_OTLP_"); !strings.Contains(text, part) ||
				strings.Contains(text, "secret") {
				t.Errorf("%s=%s: %s", name, value, text)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		t.Setenv("OTEL_TRACES_EXPORTR", "otlp")
		t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
		s := startServe(t)
		if log := s.Log.String(); !strings.Contains(log, "did_you_mean=OTEL_TRACES_EXPORTER") ||
			strings.Contains(log, "OTEL_METRICS_EXPORTER") {
			t.Errorf("the log does not say what is meant:\n%s", log)
		}
	})
}
