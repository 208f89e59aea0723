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
	CA         string // who may vouch for it; empty: whom the system trusts
	ServerName string // that its certificate must have; empty: the host of its address
}

// Config reads the files, for a connection to an address.
func (f ClientFiles) Config(address string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if conf.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("%s has no host to compare the server's certificate with; name one", address)
		}
		conf.ServerName = host
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificate authorities %s: no certificate in it; want PEM", f.CA)
		}
	}
	return conf, nil
}
