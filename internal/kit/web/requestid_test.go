package web

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRequestIDIsTheSendersAndBounded(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct{ id, parent, want string }{
		{"", "", ""},
		{"abc", "", "abc"},
		{"abc", parent, "abc"},
		{"", parent, "4bf92f3577b34da6a3ce929d0e0e4736"},
		{"", "00-short-x-01", ""},
		{"", strings.Repeat("-", 10_000), ""},
		{"a\xff", "", "a?"},
		{strings.Repeat("x", 10_000), "", strings.Repeat("x", 120) + "…"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Request-Id", c.id)
		r.Header.Set("Traceparent", c.parent)
		if got := RequestID(r); got != c.want {
			t.Errorf("%.20q, %.20q: %q, want %q", c.id, c.parent, got, c.want)
		}
	}
}
