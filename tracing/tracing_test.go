package tracing

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// TestHeadersThatNameNoSpan: a malformed header is left out and fails nothing; a tracestate alone never counts.
func TestHeadersThatNameNoSpan(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct{ parent, state, want string }{
		{good, "", "4bf92f3577b34da6a3ce929d0e0e4736"},
		{good, "a=b", "4bf92f3577b34da6a3ce929d0e0e4736"},
		{good, strings.Repeat("x", maxHeader+1), "4bf92f3577b34da6a3ce929d0e0e4736"},
		{"", "a=b", ""},
		{"00-0-0-01", "", ""},
		{strings.Replace(good, "4bf92f3577b34da6a3ce929d0e0e4736", strings.Repeat("0", 32), 1), "", ""},
		{"01" + good[2:] + "-" + strings.Repeat("x", maxHeader), "", ""},
	} {
		got := ""
		if span := trace.SpanContextFromContext(withParent(t.Context(), c.parent, c.state)); span.IsValid() {
			got = span.TraceID().String()
		}
		if got != c.want {
			t.Errorf("%q %q: the trace %q, want %q", c.parent, c.state, got, c.want)
		}
	}
}
