package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// ClientFiles say how a server is talked to over TLS.
type ClientFiles struct {
	Cert, Key  string // what is shown to the server; empty: nothing
	CA         string // file of authorities for the server's certificate; empty: the system's
	ServerName string // that its certificate must have; empty: the host of its address
}

// Config reads the files, for a connection to an address.
func (f ClientFiles) Config(address string) (*tls.Config, error) {
	conf, err := f.Load()
	if err != nil || conf.ServerName != "" {
		return conf, err
	}
	if conf.ServerName, _, err = net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("%s has no host to compare the server's certificate with; name one", address)
	}
	return conf, nil
}

// Load reads the files. Without a ServerName, who connects says what the server's is.
func (f ClientFiles) Load() (conf *tls.Config, err error) {
	conf = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	if f.CA != "" {
		if conf.RootCAs, err = Authorities(f.CA); err != nil {
			return nil, fmt.Errorf("certificate authorities: %w", err)
		}
	}
	return conf, nil
}

// Authorities reads a file of certificates in PEM. Those of the system are not among them.
func Authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it; want PEM", file)
	}
	return pool, nil
}
