package redis

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// Without the verification of names, the rest of a certificate still counts.
func TestSkipHostnameVerification(t *testing.T) {
	certs, strangers := testenv.TestCerts(t), testenv.TestCerts(t)
	otherName := func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"elsewhere.example.com"}, nil }
	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	for _, c := range []struct {
		name, params string
		server       testenv.Pair
		ok           bool
	}{
		{"another name", "", certs.Issue(t, "server", otherName), false},
		{"another name, skipped", "&skip_hostname_verification=true", certs.Issue(t, "server", otherName), true},
		{"another authority, skipped", "&skip_hostname_verification=true", strangers.Issue(t, "server"), false},
		{"expired, skipped", "&skip_hostname_verification=true", certs.Issue(t, "server", otherName, expired), false},
	} {
		conf, err := Parse("rediss://localhost?ca=" + certs.CAFile + c.params)
		if err != nil {
			t.Fatal(err)
		}
		client, err := conf.tlsConfig()
		if err != nil {
			t.Fatal(err)
		}
		if client = client.Clone(); client.ServerName == "" {
			client.ServerName = "localhost" // as the driver does
		}
		pair, err := tls.LoadX509KeyPair(c.server.CertFile, c.server.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if conn, err := l.Accept(); err == nil {
				_ = conn.(*tls.Conn).HandshakeContext(t.Context())
				_ = conn.Close()
			}
		}()
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: client}
		conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			_ = conn.Close()
		}
		_ = l.Close()
	}
}

// TestPortWithTLS: a Redis with TLS hangs up on who does without, and the error says what to look at.
func TestPortWithTLS(t *testing.T) {
	s := testenv.StartRedis(t, testenv.WithTLS(nil))
	if err := open(t, "redis://"+s.Addr).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "rediss://") {
		t.Errorf("the error is %v", err)
	}
}

// TestPortWithoutTLS: a Redis without TLS waits for more, and the error says what to look at, whether the call or the
// handshake is late first.
func TestPortWithoutTLS(t *testing.T) {
	address := strings.Replace(testenv.StartRedis(t).URL(), "redis://", "rediss://", 1)
	for _, bounds := range []string{"?timeout=200ms&dial_timeout=5s", "?timeout=5s&dial_timeout=200ms"} {
		if err := open(t, address+bounds).Ping(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "does the port speak it?") {
			t.Errorf("%s: the error is %v", bounds, err)
		}
	}
}
