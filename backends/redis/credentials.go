package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/bounded"
	"github.com/headgate-rls/headgate/internal/kit/certs"
)

// connect connects to a server or a Sentinel. It reads the files of TLS each time, because certificates are renewed.
func (c *Config) connect(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: c.DialTimeout}
	conf, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	if conf == nil {
		return d.DialContext(ctx, network, address)
	}
	return (&tls.Dialer{NetDialer: d, Config: conf}).DialContext(ctx, network, address)
}

// tlsConfig reads the files that c names.
func (c *Config) tlsConfig() (*tls.Config, error) {
	if !c.TLS {
		return nil, nil
	}
	files := certs.ClientFiles{Cert: c.Cert, Key: c.Key, CA: c.CA, ServerName: c.ServerName}
	t, err := files.Load()
	if err != nil {
		return nil, fmt.Errorf("parameters ca, cert and key: %w", err)
	}
	t.InsecureSkipVerify = c.InsecureSkipVerify
	if c.SkipHostname {
		roots := t.RootCAs
		t.InsecureSkipVerify = true // what VerifyConnection does instead
		t.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s.PeerCertificates, roots) }
	}
	return t, nil
}

// verifyChain verifies certificates as crypto/tls does, except for the names in them.
func verifyChain(shown []*x509.Certificate, roots *x509.CertPool) error {
	if len(shown) == 0 {
		return errors.New("the server shows no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range shown[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := shown[0].Verify(opts)
	return err
}

// password returns what to log in with now. Files are read again for each
// connection, because secrets are rotated.
func (c *Config) password() (string, error) {
	switch {
	case c.PasswordFile != "":
		return readPassword("password_file", c.PasswordFile)
	case c.PasswordEnv != "":
		p, ok := os.LookupEnv(c.PasswordEnv)
		if !ok {
			return "", fmt.Errorf("parameter password_env: %s is not set", c.PasswordEnv)
		}
		return p, nil
	}
	return string(c.Password), nil
}

func (c *Config) sentinelPassword() (string, error) {
	if c.SentinelPasswordFile != "" {
		return readPassword("sentinel_password_file", c.SentinelPasswordFile)
	}
	return string(c.SentinelPassword), nil
}

// maxPassword bounds a file with a password.
const maxPassword = 1 << 20

func readPassword(name, file string) (string, error) {
	b, err := bounded.File(file, maxPassword)
	if err != nil {
		return "", fmt.Errorf("parameter %s: %w", name, err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}
