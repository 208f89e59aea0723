package transport

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/ratelimit"
)

func TestTraceParentOfB3(t *testing.T) {
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, c := range []struct{ single, several, want string }{
		{trace + "-" + span + "-1", "", "00-" + trace + "-" + span + "-01"},
		{trace + "-" + span + "-0-00f067aa0ba902b7", "", "00-" + trace + "-" + span + "-00"},
		{trace + "-" + span + "-d", "", "00-" + trace + "-" + span + "-01"},
		{trace + "-" + span, "", "00-" + trace + "-" + span + "-00"},
		{trace[16:] + "-" + span + "-1", "", "00-0000000000000000" + trace[16:] + "-" + span + "-01"},
		{"0", "", ""}, {"x-" + span + "-1", "", ""}, {strings.ToUpper(trace) + "-" + span + "-1", "", ""},
		{strings.Repeat("0", 32) + "-" + span + "-1", "", ""}, {"", "", ""},
		{"", trace + " " + span + " 1 ", "00-" + trace + "-" + span + "-01"},
		{"", trace + " " + span + " true ", "00-" + trace + "-" + span + "-01"},
		{"", trace + " " + span + "  1", "00-" + trace + "-" + span + "-01"},
		{"", trace + " " + span + " 0 0", "00-" + trace + "-" + span + "-00"},
		{"", trace + "   ", ""},
	} {
		values := append([]string{c.single}, append(strings.Split(c.several, " "), "", "", "", "")[:4]...)
		if got := traceParentOfB3(values); got != c.want {
			t.Errorf("%q %q: %q, want %q", c.single, c.several, got, c.want)
		}
		var req ratelimit.Request
		setHeaders(&req, append(make([]string, 7), values...))
		if req.TraceParent != c.want {
			t.Errorf("%q %q: the request has %q", c.single, c.several, req.TraceParent)
		}
	}
	var req ratelimit.Request
	setHeaders(&req, []string{"", "", "", "", "", "w3c", "", trace + "-" + span + "-1", "", "", "", ""})
	if req.TraceParent != "w3c" {
		t.Errorf("beside a traceparent: %q", req.TraceParent)
	}
}
