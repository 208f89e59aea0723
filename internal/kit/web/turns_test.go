package web

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// serveInTurns serves h in turns, and returns how many handlers had a turn at most at a time.
func serveInTurns(t *testing.T, h func(w http.ResponseWriter, r *http.Request)) (*Turns, string) {
	t.Helper()
	turns := NewTurns()
	turns.free = 1
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := Bounds{Turns: turns}.NewServer(http.HandlerFunc(h), 10*time.Second, slog.New(slog.DiscardHandler))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return turns, l.Addr().String()
}

// allFree reports whether nobody has any of so many turns, or waits for one.
func (t *Turns) allFree(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := 0
	for i := range t.waiting {
		waiting += t.waiting[i].Len()
	}
	return t.free == n && waiting == 0
}

// spin computes for a while.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// TestRequestsTakeTurns: on many connections at once, with and without a body, one computes at a time.
func TestRequestsTakeTurns(t *testing.T) {
	var now, most atomic.Int64
	turns, address := serveInTurns(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		most.Store(max(most.Load(), now.Add(1)))
		spin(100 * time.Microsecond)
		now.Add(-1)
	})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			nc, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			const each = 50
			for range each {
				fmt.Fprint(nc, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nxGET / HTTP/1.1\r\nHost: a\r\n\r\n")
			}
			answers := bufio.NewReader(nc)
			for range 2 * each {
				if resp, err := http.ReadResponse(answers, nil); err != nil || resp.StatusCode != 200 {
					t.Error(resp, err)
					return
				}
			}
		})
	}
	clients.Wait()
	// A turn ends after a while in any case, as when the machine has other work.
	if n := most.Load(); n > 3 || turns.Waited.Value() == 0 {
		t.Errorf("%d at a time, %d waited", n, turns.Waited.Value())
	}
	if !turns.allFree(1) {
		t.Error("turns are not given back")
	}
}

// TestWhoWaitsKeepsNoTurn: a client that does not send its body, a handler that waits for others and says so, and one
// that does not say so.
func TestWhoWaitsKeepsNoTurn(t *testing.T) {
	gone := make(chan struct{})
	var inside atomic.Int64
	_, address := serveInTurns(t, func(w http.ResponseWriter, r *http.Request) {
		inside.Add(1)
		switch r.URL.Path {
		case "/body":
			_, _ = io.ReadAll(r.Body)
		case "/says":
			Yield(r.Context())
			<-gone
		case "/silent":
			<-gone
		}
	})
	defer close(gone)
	for i, text := range []string{"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
		"GET /says HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /silent HTTP/1.1\r\nHost: a\r\n\r\n"} {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_, _ = io.WriteString(nc, text)
		eventually(t, "it is handled", func() bool { return inside.Load() == int64(2*i+1) })
		client := http.Client{Timeout: turnWithin / 2}
		resp, err := client.Get("http://" + address + "/other")
		if err != nil {
			t.Fatalf("while %q waits: %v", text, err)
		}
		resp.Body.Close()
	}
}

// TestRequestsWithoutATurnAreRefused and counted.
func TestRequestsWithoutATurnAreRefused(t *testing.T) {
	turns, address := serveInTurns(t, func(http.ResponseWriter, *http.Request) {})
	turns.take(t.Context(), fresh) // for good
	began := time.Now()
	resp, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 503 || time.Since(began) < turnWithin || turns.Refused.Value() != 1 {
		t.Errorf("%d after %v, %d counted", resp.StatusCode, time.Since(began), turns.Refused.Value())
	}
}
