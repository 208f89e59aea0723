package web

import (
	"net/http/httptest"
	"testing"
)

// Drivers write errors of several lines. With ?verbose each part has one line, as scripts expect.
func TestReadyHasOneLineForEachPart(t *testing.T) {
	w := httptest.NewRecorder()
	Readiness{Draining: func() bool { return false }, Parts: func() []Part {
		return []Part{
			{Name: "backend postgres", Problem: "failed to connect:\n\t127.0.0.1:1: refused\n\t[::1]:1: refused"},
			{Name: "rules"},
		}
	}}.ServeHTTP(w, httptest.NewRequest("GET", "/readyz?verbose", nil))
	want := "not ready\nbackend postgres: failed to connect: 127.0.0.1:1: refused [::1]:1: refused\nrules: ok\n"
	if got := w.Body.String(); w.Code != 503 || got != want {
		t.Errorf("%d %q, want %q", w.Code, got, want)
	}
}
