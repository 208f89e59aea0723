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

// With ?own only what is wrong with this replica counts.
func TestReadyByItself(t *testing.T) {
	shared := Part{Name: "backend", Problem: "away", Shared: true}
	for path, want := range map[string]map[bool]int{
		"/readyz":     {true: 503, false: 503},
		"/readyz?own": {true: 503, false: 200},
	} {
		for expired, code := range want {
			parts := []Part{shared, {Name: "rules"}}
			if expired {
				parts = append(parts, Part{Name: "certificates", Problem: "expired"})
			}
			w := httptest.NewRecorder()
			ready := Readiness{Draining: func() bool { return false }, Parts: func() []Part { return parts }}
			ready.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != code {
				t.Errorf("%s, expired %v: %d %s, want %d", path, expired, w.Code, w.Body, code)
			}
		}
	}
}
