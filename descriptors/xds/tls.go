package xds

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLS says how the control plane is talked to over TLS. Its files are read for each
// connection, so that renewed certificates are used with the next one.
type TLS struct {
	Cert, Key  string // files with what is shown to the control plane; empty: nothing
	CA         string // file with who may vouch for it; empty: whom the system trusts
	ServerName string // that its certificate must have; empty: the host of its address
}

// config reads the files.
func (t *TLS) config(address string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if conf.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("%s has no host to compare the certificate of the control plane with; name one", address)
		}
		conf.ServerName = host
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", t.Cert, t.Key, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificate authorities %s: no certificate in it; want PEM", t.CA)
		}
	}
	return conf, nil
}

// credentials are those of one connection.
func (o *Options) credentials() (credentials.TransportCredentials, error) {
	if o.TLS == nil {
		return insecure.NewCredentials(), nil
	}
	conf, err := o.TLS.config(o.Address)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(conf), nil
}
