package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"

	"github.com/headgate-rls/headgate/internal/kit/bounded"
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

// Load reads the files, and notes that they are [InUse]. Without a ServerName, who connects says what the server's is.
func (f ClientFiles) Load() (conf *tls.Config, err error) {
	conf = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.Cert != "" {
		pair, valid, err := LoadPair(OfClient, f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
		}
		valid.Note()
		conf.Certificates = []tls.Certificate{pair}
	}
	if f.CA != "" {
		pool, valid, err := Authorities(OfClient, f.CA)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities: %w", err)
		}
		valid.Note()
		conf.RootCAs = pool
	}
	return conf, nil
}

// maxFile bounds a file with certificates, or with a key.
const maxFile = 16 << 20

// LoadPair reads a certificate and its key, and when the certificate is valid.
func LoadPair(use Use, cert, key string) (tls.Certificate, Validity, error) {
	shown, err := bounded.File(cert, maxFile)
	if err != nil {
		return tls.Certificate{}, Validity{}, err
	}
	secret, err := bounded.File(key, maxFile)
	if err != nil {
		return tls.Certificate{}, Validity{}, err
	}
	pair, err := tls.X509KeyPair(shown, secret)
	if err != nil {
		return pair, Validity{}, err
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return pair, Validity{}, err
		}
	}
	return pair, validityOf(use, cert, pair.Leaf), nil
}

// Authorities reads a file of certificates in PEM, and when they are valid. Those of the system are not among them.
func Authorities(use Use, file string) (*x509.CertPool, Validity, error) {
	text, err := bounded.File(file, maxFile)
	if err != nil {
		return nil, Validity{}, err
	}
	pool := x509.NewCertPool()
	var list []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, bad := x509.ParseCertificate(block.Bytes)
		if bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		pool.AddCert(c)
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, Validity{}, errors.Join(fmt.Errorf("%s: no certificate in it; want PEM", file), err)
	}
	return pool, validityOf(use, file, list...), nil
}
