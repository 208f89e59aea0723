package testenv

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo starts a server that sends everything back.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// roundTrip sends five bytes and waits until they are back.
func roundTrip(c net.Conn, limit time.Duration) (time.Duration, error) {
	start := time.Now()
	if err := c.SetDeadline(start.Add(limit)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return time.Since(start), err
}

func TestProxyDelaysFreezesAndCuts(t *testing.T) {
	t.Parallel()
	p := StartProxy(t, echo(t))
	c := dial(t, p.Addr)
	if _, err := roundTrip(c, 5*time.Second); err != nil {
		t.Fatalf("through the proxy: %v", err)
	}
	// What has arrived is counted a moment later.
	want := ProxyStats{Accepted: 1, Open: 1, BytesUp: 5, BytesDown: 5}
	Eventually(t, 10*time.Second, "what went through is counted", func() string {
		if got := p.Stats(); got != want {
			return fmt.Sprintf("the counters are %+v, want %+v", got, want)
		}
		return ""
	})

	p.SetLatency(60 * time.Millisecond)
	if d, err := roundTrip(c, 5*time.Second); err != nil || d < 60*time.Millisecond {
		t.Errorf("with 60 ms of latency a round trip takes %v (%v)", d, err)
	}
	p.SetLatency(0)

	p.Freeze()
	p.Freeze() // twice is as good as once
	if _, err := roundTrip(c, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a round trip through a frozen proxy ends with %v", err)
	}
	late := dial(t, p.Addr)
	if _, err := roundTrip(late, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a round trip on a new connection through a frozen proxy ends with %v", err)
	}
	p.Resume()
	for _, conn := range []net.Conn{c, late} {
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
			t.Errorf("what was held back is not delivered: %v", err)
		}
	}

	p.Cut()
	if _, err := roundTrip(c, 5*time.Second); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a round trip on a connection that was cut ends with %v", err)
	}
	again := dial(t, p.Addr)
	if _, err := roundTrip(again, 5*time.Second); err != nil {
		t.Errorf("a new connection after the cut: %v", err)
	}

	// An orderly end travels through too.
	if err := again.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(again); err != nil || len(rest) != 0 {
		t.Errorf("after the end of the stream come %q (%v)", rest, err)
	}
}

func TestProxyWithoutServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	p := StartProxy(t, addr)
	// The reset may come before the client is through with connecting.
	c, err := net.DialTimeout("tcp", p.Addr, 5*time.Second)
	if err == nil {
		defer c.Close()
		_, err = roundTrip(c, 5*time.Second)
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a round trip to a server that does not exist ends with %v, want a reset", err)
	}
}

// A split delivers the first half before the second, and a bound on bytes per
// second makes few of them slow; both end when they are taken back.
func TestProxyPieces(t *testing.T) {
	t.Parallel()
	p := StartProxy(t, echo(t))
	c := dial(t, p.Addr)

	p.SetSplit(80 * time.Millisecond)
	start := time.Now()
	c.SetDeadline(start.Add(5 * time.Second))
	if _, err := io.WriteString(c, "hello!"); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 64)
	n, err := c.Read(first)
	if err != nil || n >= 6 {
		t.Errorf("%d bytes of 6 come at first (%v), want fewer", n, err)
	}
	if _, err := io.ReadFull(c, first[n:6]); err != nil || string(first[:6]) != "hello!" {
		t.Errorf("in pieces come %q (%v)", first[:6], err)
	}
	if d := time.Since(start); d < 80*time.Millisecond {
		t.Errorf("the last half took %v, want at least 80 ms", d)
	}
	p.SetSplit(0)

	p.SetRate(100) // one byte in 10 ms, either way
	if d, err := roundTrip(c, 5*time.Second); err != nil || d < 50*time.Millisecond {
		t.Errorf("5 bytes at 100 a second took %v (%v)", d, err)
	}
	p.SetRate(0)
	if _, err := roundTrip(c, 5*time.Second); err != nil {
		t.Errorf("without a bound again: %v", err)
	}

	// A connection that is being starved can still be cut.
	p.SetRate(1)
	p.Cut()
	if _, err := roundTrip(c, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a round trip on a connection that was cut ends with %v", err)
	}
}
