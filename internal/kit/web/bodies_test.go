package web

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serveHere serves h as every server of HTTP does.
func serveHere(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := Bounds{}.NewServer(h, 10*time.Second, slog.New(slog.DiscardHandler))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("in vain: " + what)
		}
	}
}

// TestHalfSentBodiesLeaveRoomForOthers: clients that send nearly all of many large bodies, and no end of
// any, keep no more than the bound; requests of ordinary size are answered meanwhile, and large ones
// when they have left.
func TestHalfSentBodiesLeaveRoomForOthers(t *testing.T) {
	const large = 1 << 20
	var read atomic.Int64
	address := serveHere(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := ReadBody(w, &http.Request{Body: counting{r.Body, &read}}, large)
		if err != nil {
			Error(w, err.(*RequestError).Status, err.Error())
			return
		}
		fmt.Fprint(w, len(body))
	}))
	var slow []net.Conn
	defer func() {
		for _, c := range slow {
			_ = c.Close()
		}
	}()
	send := func() {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
		go func() {
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", large)
			_, _ = c.Write(make([]byte, large-1)) // fails where the body is refused
		}()
	}
	for range 60 {
		send()
	}
	post := func(size int) (status int) {
		resp, err := http.Post("http://"+address, "text/plain", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	eventually(t, "large bodies are refused", func() bool {
		if post(large) == 503 {
			return true
		}
		send() // those that were refused together may have left room
		return false
	})
	if n := read.Load(); n > 4*maxBodies+int64(len(slow)-60)*2*large {
		t.Errorf("%d bytes were read", n)
	}
	for _, size := range []int{0, freeBody, freeBody + 1<<10} {
		if status := post(size); status != 200 {
			t.Errorf("a body of %d bytes gets %d", size, status)
		}
	}
	for _, c := range slow {
		_ = c.Close()
	}
	eventually(t, "a large body is read when the others have left", func() bool { return post(large) == 200 })
}

// counting counts what is read.
type counting struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestLargeBodiesAreDecodedInTurns: no more of them at a time than there are CPUs, while small ones do
// not wait.
func TestLargeBodiesAreDecodedInTurns(t *testing.T) {
	var now, most atomic.Int64
	hold, done := make(chan struct{}), make(chan error)
	for range cap(decoding) + 5 {
		go func() {
			done <- InTurn(t.Context(), freeBody+1, func() {
				most.Store(max(most.Load(), now.Add(1)))
				<-hold
				now.Add(-1)
			})
		}()
	}
	eventually(t, "every turn is taken", func() bool { return now.Load() == int64(cap(decoding)) })
	small := false
	if err := InTurn(t.Context(), freeBody, func() { small = true }); err != nil || !small {
		t.Error("a small body waits:", err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if err := InTurn(ctx, freeBody+1, func() { t.Error("decoded for who has left") }); err == nil {
		t.Error("who has left is told nothing")
	}
	close(hold)
	for range cap(decoding) + 5 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := most.Load(); n > int64(cap(decoding)) {
		t.Errorf("%d large bodies are decoded at a time, on %d CPUs", n, cap(decoding))
	}
}

// TestConnectionsThatWaitMakeRoom: above the bound the connection closes that has been quiet for
// longest, so that a new one is served.
func TestConnectionsThatWaitMakeRoom(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := Bounds{}.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), time.Second,
		slog.New(slog.DiscardHandler))
	open := newConns(3, new(Stats))
	server.ConnState = open.changed
	size := func() int {
		open.mu.Lock()
		defer open.mu.Unlock()
		return open.list.Len()
	}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	get := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return err
		}
		_, err := io.ReadAtLeast(c, make([]byte, 1<<10), len("HTTP/1.1 200"))
		return err
	}
	var list []net.Conn
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		list = append(list, c)
		return c
	}
	first := dial()
	eventually(t, "the first is open", func() bool { return size() == 1 })
	dial() // says nothing
	eventually(t, "the second is open", func() bool { return size() == 2 })
	if err := get(first); err != nil { // and is now the younger one
		t.Fatal(err)
	}
	for range 2 {
		if err := get(dial()); err != nil {
			t.Fatal("a new connection is not served:", err)
		}
	}
	if err := get(list[1]); err == nil {
		t.Error("the connection that was quiet for longest is open")
	}
	for i, c := range []net.Conn{first, list[2], list[3]} {
		if err := get(c); err != nil {
			t.Errorf("connection %d that was used is closed: %v", i, err)
		}
	}
	for _, c := range list {
		_ = c.Close()
	}
	eventually(t, "closed connections are forgotten", func() bool { return size() == 0 })
}
