package server

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/headgate-rls/headgate/internal/wire/handshake"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestHandshakesOfGRPCWaitForTheirTurn: grpc-go's handshakes have the same bounds.
func TestHandshakesOfGRPCWaitForTheirTurn(t *testing.T) {
	bounds := handshake.New(1 << 20)
	// send returns a connection on which a client has sent something.
	send := func(client func(net.Conn)) net.Conn {
		here, there := net.Pipe()
		t.Cleanup(func() { _, _ = here.Close(), there.Close() })
		go client(there)
		return here
	}
	var others []*handshake.Conn
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		c := bounds.Conn(send(func(nc net.Conn) { _, _ = nc.Write([]byte{1}) }))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		others = append(others, c)
	}
	certs := testenv.TestCerts(t)
	conf := certs.ServerTLS(t, true)
	conf.NextProtos = []string{"h2"}
	client := certs.ClientTLS(t)
	client.NextProtos, client.ServerName = []string{"h2"}, "localhost"
	bound := boundCredentials{credentials.NewTLS(conf), bounds, func(net.Addr, error) {}}.Clone()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	result := make(chan error)
	go func() {
		_, _, err := bound.ServerHandshake(send(func(nc net.Conn) { _ = tls.Client(nc, client).HandshakeContext(ctx) }))
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("the handshake did not wait for its turn (%v)", err)
	case <-time.After(100 * time.Millisecond):
	}
	for _, c := range others {
		c.Done()
	}
	select {
	case err := <-result:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("the handshake has no end")
	}
}
