package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// speakHTTP2 opens a connection, and returns it with what reads and writes its frames for so long.
func speakHTTP2(t *testing.T, address string, within time.Duration) *http2.Framer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	fr := http2.NewFramer(conn, conn)
	_ = fr.WriteSettings()
	return fr
}

// TestOldConnectionsAreClosed after --grpc-max-connection-age and its grace, though a request is not complete.
func TestOldConnectionsAreClosed(t *testing.T) {
	onTransports(t, func(t *testing.T, transport []string) {
		r := startServe(t, append(transport, "--example", "--grpc-max-connection-age", "1s",
			"--grpc-max-connection-age-grace", "1s")...)
		fr := speakHTTP2(t, r.GRPC, 8*time.Second)
		var block bytes.Buffer
		headers := hpack.NewEncoder(&block)
		for _, h := range []string{":method POST", ":scheme http", ":authority x",
			":path /envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "content-type application/grpc",
			"te trailers"} {
			name, value, _ := strings.Cut(h, " ")
			_ = headers.WriteField(hpack.HeaderField{Name: name, Value: value})
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
		began, leave := time.Now(), false
		for {
			frame, err := fr.ReadFrame()
			took := time.Since(began)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("open after %v, leave=%v", took, leave)
			} else if err != nil && (!leave || took < time.Second) {
				t.Fatalf("closed after %v, leave=%v: %v", took, leave, err)
			}
			if err != nil {
				return
			}
			switch f := frame.(type) {
			case *http2.GoAwayFrame:
				leave = true
			case *http2.PingFrame:
				_ = fr.WritePing(true, f.Data)
			}
		}
	})
}

// TestIdleConnectionsAreProbed after --grpc-keepalive, which finds clients whose hosts are gone.
func TestIdleConnectionsAreProbed(t *testing.T) {
	onTransports(t, func(t *testing.T, transport []string) {
		r := startServe(t, append(transport, "--example", "--grpc-keepalive", "1s")...)
		began, fr := time.Now(), speakHTTP2(t, r.GRPC, 4*time.Second) // without the setting it takes 5 s or more
		for {
			frame, err := fr.ReadFrame()
			if err != nil {
				t.Fatalf("no PING: %v after %v", err, time.Since(began))
			}
			if _, ping := frame.(*http2.PingFrame); ping && time.Since(began) > 500*time.Millisecond {
				return
			}
		}
	})
}

// TestSocketsHaveTheirMode: --socket-mode says who may connect.
func TestSocketsHaveTheirMode(t *testing.T) {
	dir := t.TempDir()
	addresses := map[string]string{"--grpc": "grpc", "--services": "services", "--http": "http", "--debug": "debug"}
	for text, mode := range map[string]os.FileMode{"0600": 0o600, "0666": 0o666} {
		args := []string{"--example", "--socket-mode", text}
		for flag, name := range addresses {
			args = append(args, flag, "unix:"+filepath.Join(dir, name))
		}
		r := startServe(t, args...)
		for _, name := range addresses {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.Mode().Perm() != mode {
				t.Errorf("--socket-mode %s: %s has %v, %v", text, name, info, err)
			}
		}
		r.Stop()
		r.Ends(20 * time.Second)
	}
}
