package redis

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestRenegotiationEndsTheConnection: a server that asks for a new TLS handshake in the middle of a connection gets
// none. The call fails at once, and the next one has a new connection. No Redis asks for one, so openssl does.
func TestRenegotiationEndsTheConnection(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("there is no openssl")
	}
	certs, port := testenv.TestCerts(t), strconv.Itoa(testenv.FreePort(t))
	ctx, stop := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, openssl, "s_server", "-accept", "127.0.0.1:"+port, "-tls1_2", "-cert",
		certs.Server.CertFile, "-key", certs.Server.KeyFile)
	keyboard, err := cmd.StdinPipe()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
	})
	testenv.Eventually(t, 10*time.Second, "openssl listens", func() string {
		nc, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return err.Error()
		}
		_ = nc.Close() // openssl waits for the next one
		return ""
	})
	b := open(t, "rediss://127.0.0.1:"+port+"?timeout=10s&dial_timeout=10s&ca="+certs.CAFile)
	for call := range 2 {
		time.AfterFunc(time.Second, func() { _, _ = io.WriteString(keyboard, "R\n") }) // renegotiate
		began := time.Now()
		err := takeWithin(b, 10*time.Second)
		if !errors.Is(err, backends.ErrUnavailable) {
			t.Errorf("call %d: error %v, want that the backend is unavailable", call, err)
		}
		if took := time.Since(began); took < 500*time.Millisecond || took > 5*time.Second {
			t.Errorf("call %d: it took %v, want about a second: %v", call, took, err)
		}
	}
}
