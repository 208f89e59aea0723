package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Pair is a certificate and its key, as PEM files.
type Pair struct {
	CertFile string
	KeyFile  string
}

// Certs is a certificate authority of the test's own, and what it issued.
type Certs struct {
	// CAFile holds the authority's certificate.
	CAFile string
	// Server is valid for localhost, 127.0.0.1 and ::1.
	Server Pair
	// Client is a client certificate with the common name "client".
	Client Pair

	dir   string
	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey

	mu     sync.Mutex
	issued int64
}

// TestCerts makes an authority, a server and a client certificate that are valid
// for a day. The files live as long as the test.
func TestCerts(tb TB) *Certs {
	tb.Helper()
	c := &Certs{dir: tb.TempDir(), issued: 1}
	c.CAFile = filepath.Join(c.dir, "ca.pem")
	if err := c.makeAuthority(); err != nil {
		tb.Fatalf("testenv: make a certificate authority: %v", err)
	}
	c.Server = c.Issue(tb, "server")
	c.Client = c.Issue(tb, "client")
	return c
}

func (c *Certs) makeAuthority() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(c.issued),
		Subject:               pkix.Name{CommonName: "headgate test authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	c.caKey = key
	c.ca, err = x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	return writePEM(c.CAFile, "CERTIFICATE", der)
}

// Issue makes one more certificate with the given common name. It serves both
// servers on this machine and clients; change alters the template before it is
// signed, for instance to make an expired certificate.
func (c *Certs) Issue(tb TB, commonName string, change ...func(*x509.Certificate)) Pair {
	tb.Helper()
	pair, err := c.issue(commonName, change)
	if err != nil {
		tb.Fatalf("testenv: issue a certificate for %q: %v", commonName, err)
	}
	return pair
}

func (c *Certs) issue(commonName string, change []func(*x509.Certificate)) (Pair, error) {
	c.mu.Lock()
	c.issued++
	serial := c.issued
	c.mu.Unlock()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, f := range change {
		f(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.ca, key.Public(), c.caKey)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	pair := Pair{
		CertFile: filepath.Join(c.dir, fmt.Sprintf("%d-cert.pem", serial)),
		KeyFile:  filepath.Join(c.dir, fmt.Sprintf("%d-key.pem", serial)),
	}
	if err := writePEM(pair.CertFile, "CERTIFICATE", der); err != nil {
		return Pair{}, err
	}
	return pair, writePEM(pair.KeyFile, "PRIVATE KEY", keyDER)
}

// Install copies a file of authorities, and a certificate with its key, to the files ca, cert and key of a directory.
// It overwrites them, as a renewal does.
func Install(tb TB, dir, authorities string, shown Pair) {
	tb.Helper()
	for name, from := range map[string]string{"ca": authorities, "cert": shown.CertFile, "key": shown.KeyFile} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			tb.Fatalf("testenv: install a certificate: %v", err)
		}
	}
}

// ClientTLS is for a client that trusts the authority and shows the client
// certificate when asked.
func (c *Certs) ClientTLS(tb TB) *tls.Config {
	tb.Helper()
	config, err := c.clientTLS()
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return config
}

func (c *Certs) clientTLS() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(c.Client.CertFile, c.Client.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load the client certificate: %w", err)
	}
	return &tls.Config{RootCAs: c.Pool(), Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// ServerTLS is for a server with the server certificate. If requireClient is
// set, clients must show a certificate of the authority.
func (c *Certs) ServerTLS(tb TB, requireClient bool) *tls.Config {
	tb.Helper()
	cert, err := tls.LoadX509KeyPair(c.Server.CertFile, c.Server.KeyFile)
	if err != nil {
		tb.Fatalf("testenv: load the server certificate: %v", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: c.Pool(), MinVersion: tls.VersionTLS12}
	if requireClient {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config
}

// Pool holds the authority alone.
func (c *Certs) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.ca)
	return pool
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
