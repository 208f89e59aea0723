package testenv

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"
)

func TestCertificatesAreCheckedByBothSides(t *testing.T) {
	t.Parallel()
	certs, other := TestCerts(t), TestCerts(t)

	expired := certs.Issue(t, "late", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	stale, err := tls.LoadX509KeyPair(expired.CertFile, expired.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	withStale := certs.ClientTLS(t)
	withStale.Certificates = []tls.Certificate{stale}
	bare := &tls.Config{RootCAs: certs.Pool()}

	for _, c := range []struct {
		name   string
		client *tls.Config
		want   string // part of either side's error
	}{
		{name: "both trust each other", client: certs.ClientTLS(t)},
		{name: "a client without a certificate", client: bare, want: "certificate"},
		{name: "an expired client", client: withStale, want: "expired"},
		{name: "another authority", client: other.ClientTLS(t), want: "unknown authority"},
	} {
		for _, host := range []string{"localhost", "127.0.0.1"} {
			t.Run(c.name+" on "+host, func(t *testing.T) {
				client := c.client.Clone()
				client.ServerName = host
				errs := handshake(t, certs.ServerTLS(t, true), client)
				if c.want == "" && errs != "" || !strings.Contains(errs, c.want) {
					t.Errorf("the handshake ends with %q, want %q in it", errs, c.want)
				}
			})
		}
	}
}

// handshake returns the errors of both sides.
func handshake(t *testing.T, server, client *tls.Config) string {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	deadline := time.Now().Add(10 * time.Second)
	a.SetDeadline(deadline)
	b.SetDeadline(deadline)
	result := make(chan error)
	go func() {
		err := tls.Server(a, server).Handshake()
		a.Close()
		result <- err
	}()
	c := tls.Client(b, client)
	err := c.Handshake()
	if err == nil {
		// With TLS 1.3 a refused client certificate shows at the first read.
		_, err = c.Read(make([]byte, 1))
		if err != nil && err.Error() == "EOF" {
			err = nil
		}
	}
	b.Close()
	text := ""
	for _, err := range []error{err, <-result} {
		if err != nil {
			text += err.Error() + "; "
		}
	}
	return text
}
