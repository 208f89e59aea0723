package server

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

func TestCertificatesReload(t *testing.T) {
	certs := testenv.TestCerts(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	install := func(p testenv.Pair, at time.Time) {
		for from, to := range map[string]string{p.CertFile: cert, p.KeyFile: key} {
			data, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(to, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	install(certs.Issue(t, "first"), time.Unix(1000, 0))
	var log bytes.Buffer
	conf, err := serverTLS(&certFiles{flags: "grpc", cert: cert, key: key, clientCA: certs.CAFile,
		log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if conf.ClientAuth != tls.RequireAndVerifyClientCert {
		t.Error("client certificates are not required")
	}
	f := &certFiles{flags: "grpc", cert: cert, key: key, log: slog.New(slog.NewTextHandler(&log, nil))}
	current := func() *tls.Config { f.checked = time.Time{}; return f.current() }
	first := current()
	if current() != first {
		t.Error("reloaded without a change")
	}
	install(certs.Issue(t, "second"), time.Unix(2000, 0))
	second := current()
	if second == first {
		t.Error("not reloaded")
	}
	if err := os.WriteFile(cert, []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	if current() != second || !strings.Contains(log.String(), "the old ones stay") {
		t.Errorf("a bad certificate is used; log: %s", log.String())
	}
	if _, err := serverTLS(&certFiles{flags: "grpc", cert: cert, key: key, log: slog.Default()}); err == nil ||
		!strings.Contains(err.Error(), "--grpc-tls-cert") {
		t.Errorf("a bad certificate at start: %v", err)
	}
}

// With --grpc-client-auth if-given a client may show no certificate, but none of a stranger.
func TestCertificatesIfGiven(t *testing.T) {
	certs, strangers := testenv.TestCerts(t), testenv.TestCerts(t)
	server := certs.Issue(t, "server")
	for _, c := range []struct {
		ifGiven bool
		client  *testenv.Pair
		ok      bool
	}{
		{true, nil, true},
		{true, pointer(certs.Issue(t, "friend")), true},
		{true, pointer(strangers.Issue(t, "stranger")), false},
		{false, nil, false},
		{false, pointer(certs.Issue(t, "friend")), true},
	} {
		conf, err := serverTLS(&certFiles{flags: "grpc", cert: server.CertFile, key: server.KeyFile, clientCA: certs.CAFile,
			ifGiven: c.ifGiven, log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		client := &tls.Config{RootCAs: certs.Pool(), ServerName: "localhost"}
		if c.client != nil {
			pair, err := tls.LoadX509KeyPair(c.client.CertFile, c.client.KeyFile)
			if err != nil {
				t.Fatal(err)
			}
			// Also shown to servers that would not know it.
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		near, far := net.Pipe()
		_, _ = near.SetDeadline(time.Now().Add(10*time.Second)), far.SetDeadline(time.Now().Add(10*time.Second))
		done := make(chan error, 1)
		go func() { done <- tls.Server(far, conf).HandshakeContext(t.Context()) }()
		conn := tls.Client(near, client)
		go func() { _ = conn.HandshakeContext(t.Context()); _, _ = io.Copy(io.Discard, conn) }()
		if err := <-done; (err == nil) != c.ok {
			t.Errorf("if given %v, certificate %v: %v", c.ifGiven, c.client, err)
		}
		_, _ = near.Close(), far.Close()
	}
}

func pointer[T any](v T) *T { return &v }
