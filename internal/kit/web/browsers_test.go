package web

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPagesOfOtherSites: what browsers send for a page of another site is refused, of a port without a token whatever
// it asks, else where it changes something; programs, and pages of the port itself, pass.
func TestPagesOfOtherSites(t *testing.T) {
	refusals := NewRefusals(slog.New(slog.DiscardHandler))
	done := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	open := SameSite(refusals, done)
	private := Private{Hosts: []string{"debug.internal"}, Setting: "--debug-host", Refusals: refusals,
		Open: func(r *http.Request) bool { return r.URL.Path == "/metrics" }}.Wrap(done)
	for _, c := range []struct {
		name, method, path, host string
		header                   []string
		open, private            int
	}{
		{"a program", "POST", "/", "127.0.0.1:6070", nil, 200, 200},
		{"a program that sends text", "POST", "/", "127.0.0.1:6070", []string{"Content-Type", "text/plain"}, 200, 200},
		{"a simple POST of a page", "POST", "/", "127.0.0.1:6070",
			[]string{"Content-Type", "text/plain", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403, 403},
		{"of an older browser", "POST", "/", "127.0.0.1:6070", []string{"Origin", "https://evil.example"}, 403, 403},
		{"of a sandboxed frame", "POST", "/", "127.0.0.1:6070", []string{"Origin", "null"}, 403, 403},
		{"of another port", "POST", "/", "localhost:6070",
			[]string{"Origin", "http://localhost:3000", "Sec-Fetch-Site", "same-site"}, 403, 403},
		{"an image of a page", "GET", "/", "127.0.0.1:6070", []string{"Sec-Fetch-Site", "cross-site"}, 200, 403},
		{"a fetch of a page", "GET", "/", "127.0.0.1:6070", []string{"Origin", "https://evil.example"}, 200, 403},
		{"its own page", "POST", "/", "127.0.0.1:6070",
			[]string{"Origin", "http://127.0.0.1:6070", "Sec-Fetch-Site", "same-origin"}, 200, 200},
		{"its own page in an older browser", "POST", "/", "127.0.0.1:6070",
			[]string{"Origin", "http://127.0.0.1:6070"}, 200, 200},
		{"an address that was typed", "GET", "/", "localhost:6070", []string{"Sec-Fetch-Site", "none"}, 200, 200},

		{"a name of others", "GET", "/", "evil.example:6070", []string{"Sec-Fetch-Site", "same-origin"}, 200, 403},
		{"one that looks like ours", "GET", "/", "127.0.0.1.evil.example", nil, 200, 403},
		{"one that begins like ours", "GET", "/", "localhost.evil.example:6070", nil, 200, 403},
		{"an open path", "GET", "/metrics", "evil.example", nil, 200, 200},
		{"an open path for a page", "GET", "/metrics", "evil.example", []string{"Sec-Fetch-Site", "cross-site"}, 200, 403},
		{"a listed name", "GET", "/", "Debug.Internal:6070", nil, 200, 200},
		{"localhost with a point", "GET", "/", "LOCALHOST.", nil, 200, 200},
		{"IPv6", "GET", "/", "[::1]:6070", nil, 200, 200},
		{"IPv6 without a port", "GET", "/", "[fe80::1]", nil, 200, 200},
		{"no host", "GET", "/", "", nil, 200, 200},
		{"a long name", "GET", "/", strings.Repeat("x", 8<<10), nil, 200, 403},
	} {
		for kind, want := range map[string]int{"open": c.open, "private": c.private} {
			r := httptest.NewRequest(c.method, "http://a"+c.path, strings.NewReader("{}"))
			r.Host = c.host
			for i := 0; i < len(c.header); i += 2 {
				r.Header.Set(c.header[i], c.header[i+1])
			}
			w := httptest.NewRecorder()
			map[string]http.Handler{"open": open, "private": private}[kind].ServeHTTP(w, r)
			if w.Code != want || w.Body.Len() > 1<<10 {
				t.Errorf("%s, %s: %d %.100s, want %d", c.name, kind, w.Code, w.Body, want)
			}
		}
	}
	a, b := refusals.counters.Of("403", otherSite).Value(), refusals.counters.Of("403", "host").Value()
	if a != 11 || b != 4 {
		t.Errorf("%d from other sites and %d by other names are counted", a, b)
	}
	r := httptest.NewRequest("GET", "http://evil.example/", nil)
	r.RemoteAddr = "@"
	w := httptest.NewRecorder()
	private.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Errorf("by a Unix socket: %d", w.Code)
	}
}
