package web

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestSlowClientsAreCounted: one that sends half a header, half a body, or nothing at first; not one that is quiet
// between its requests.
func TestSlowClientsAreCounted(t *testing.T) {
	stats := new(Stats)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	read := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	server := Bounds{Stats: stats, Connections: 4}.NewServer(http.HandlerFunc(read), time.Second,
		slog.New(slog.DiscardHandler))
	server.ReadHeaderTimeout, server.ReadTimeout, server.IdleTimeout = 200*time.Millisecond, 200*time.Millisecond,
		200*time.Millisecond
	go func() { _ = server.Serve(stats.Listener(inner)) }()
	defer server.Close()
	for i, text := range []string{"GET / HTTP/1.1\r\nHost:", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
		"", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		nc, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_, _ = io.WriteString(nc, text)
		_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.ReadAll(nc) // until the server closes it
		if n, want := stats.Timeouts.Value(), int64(min(i+1, 3)); n != want {
			t.Errorf("%q: %d are counted, want %d", text, n, want)
		}
	}
	eventually(t, "all connections have ended", func() bool { return stats.Open.Load() == 0 })
	for range 6 {
		nc, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	eventually(t, "those above the bound are counted", func() bool { return stats.Displaced.Value() == 2 })
	if n := stats.Accepted.Value(); n != 10 {
		t.Errorf("%d connections are counted, want 10", n)
	}
}
