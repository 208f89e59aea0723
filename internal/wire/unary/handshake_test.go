package unary

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/wire/handshake"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestHandshakesWaitForTheirTurn: a handshake does not compute while others have all turns.
func TestHandshakesWaitForTheirTurn(t *testing.T) {
	bounds := handshake.New(1 << 20)
	var others []*handshake.Conn
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		here, there := net.Pipe()
		t.Cleanup(func() { _, _ = here.Close(), there.Close() })
		go func() { _, _ = there.Write([]byte{1}) }()
		c := bounds.Conn(here)
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		others = append(others, c)
	}
	certs := testenv.TestCerts(t)
	conf := certs.ServerTLS(t, true)
	conf.NextProtos = []string{"h2"}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	startOn(t, l, func(c *Config) { c.TLS, c.Handshakes, c.ReadTimeout = conf, bounds, time.Minute })
	connect := func(within time.Duration) error {
		client := certs.ClientTLS(t)
		client.NextProtos = []string{"h2"}
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		nc, err := (&tls.Dialer{Config: client}).DialContext(ctx, "tcp", l.Addr().String())
		if err == nil {
			_ = nc.Close()
		}
		return err
	}
	if err := connect(100 * time.Millisecond); err == nil {
		t.Error("a handshake did not wait for its turn")
	}
	for _, c := range others {
		c.Done()
	}
	if err := connect(20 * time.Second); err != nil {
		t.Error(err)
	}
}
