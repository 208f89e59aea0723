package compat

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/collector"
)

// traced is an environment that sends traces as the reference does, to a collector.
func traced(t *testing.T, endpoint string, more ...string) map[string]string {
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 100))
	return rules(root, append([]string{"TRACING_ENABLED", "true", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://" + endpoint,
		"OTEL_BSP_SCHEDULE_DELAY", "20"}, more...)...)
}

func decision(s collector.Span) bool { return s.Name == "ShouldRateLimit" }

// Traces go to the collector by the protocol and under the names that the reference's variables say.
func TestTracesOfTheReference(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"", "http", "grpc"} {
		t.Run("protocol "+protocol, func(t *testing.T) {
			t.Parallel()
			c := collector.Start(t, nil)
			endpoint := c.HTTP
			if protocol == "grpc" {
				endpoint = c.GRPC
			}
			s := start(t, traced(t, endpoint, "TRACING_EXPORTER_PROTOCOL", protocol, "TRACING_SERVICE_NAME", "limits, all",
				"TRACING_SERVICE_NAMESPACE", "shop",
				"TRACING_SERVICE_INSTANCE_ID", "pod-0", "OTEL_RESOURCE_ATTRIBUTES", "team=pay,service.namespace=other",
				"OTEL_SERVICE_NAME", "other"))
			s.codes(1, "d", "a=b")
			got := c.Await(decision).Resource
			for key, want := range map[string]string{"service.name": "limits, all", "service.namespace": "shop",
				"service.instance.id": "pod-0", "team": "pay"} {
				if got[key] != want {
					t.Errorf("%s is %q, want %q", key, got[key], want)
				}
			}
		})
	}
	t.Run("defaults", func(t *testing.T) {
		t.Parallel()
		c := collector.Start(t, nil)
		s := start(t, traced(t, c.HTTP))
		s.codes(1, "d", "a=b")
		if got := c.Await(decision).Resource; got["service.name"] != "RateLimit" || len(got["service.instance.id"]) != 36 {
			t.Errorf("resource %v", got)
		}
	})
}

// TRACING_SAMPLING_RATE is of calls without a trace. The others are sampled as their trace is.
func TestSamplingOfTheReference(t *testing.T) {
	t.Parallel()
	c := collector.Start(t, nil)
	s := start(t, traced(t, c.HTTP, "TRACING_SAMPLING_RATE", "0"))
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, parent := range []string{"", "00-" + trace + "-00f067aa0ba902b7-00", "00-" + trace + "-00f067aa0ba902b7-01"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.http+"/json",
			strings.NewReader(`{"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("traceparent", parent)
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if got := c.Await(decision); got.TraceID != trace {
		t.Errorf("trace %s", got.TraceID)
	}
	s.Terminate()
	if code := s.Wait(startWithin); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	n := 0
	for _, span := range c.Spans() {
		if decision(span) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d calls have spans, want 1", n)
	}
}

// Without TRACING_ENABLED nothing is traced, and OTEL_TRACES_EXPORTER decides alone if it is set.
func TestTracesThatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	for _, more := range [][]string{{"TRACING_ENABLED", "false"}, {"OTEL_TRACES_EXPORTER", "none"}} {
		c := collector.Start(t, nil)
		s := start(t, traced(t, c.HTTP, more...))
		s.codes(1, "d", "a=b")
		s.Terminate()
		if code := s.Wait(startWithin); code != 0 {
			t.Errorf("%v: it ended with %d", more, code)
		}
		if n := len(c.Spans()); n != 0 {
			t.Errorf("%v: %d spans", more, n)
		}
	}
}
