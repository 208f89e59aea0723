package unary

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestClientsThatSpeakSomethingElse: a client of HTTP/1.1 learns in one line what the port speaks. Each counts, and the
// log says which it was.
func TestClientsThatSpeakSomethingElse(t *testing.T) {
	var log testenv.Log
	s, addr := start(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Get("http://" + addr + "/json")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	want := "This port speaks gRPC over HTTP/2, and no HTTP/1.1\n"
	if resp.StatusCode != http.StatusBadRequest || err != nil || string(body) != want {
		t.Errorf("HTTP/1.1 gets %d %q, %v", resp.StatusCode, body, err)
	}
	testenv.Eventually(t, 10*time.Second, "the log says who speaks what", func() (wrong string) {
		if !strings.Contains(log.String(), "speaks HTTP/1.1") {
			wrong = log.String()
		}
		return wrong
	})
	if _, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}}).Dial("tcp", addr); err == nil {
		t.Error("a handshake succeeds on a port without TLS")
	}
	nc, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = nc.Write([]byte("\x00\x01garbage"))
	if line, err := bufio.NewReader(nc).ReadString('\n'); err == nil {
		t.Errorf("garbage gets %q", line)
	}
	if n := s.Stats().Foreign; n != 3 {
		t.Errorf("%d such clients, want 3", n)
	}
}
