package xds

import (
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-rls/headgate/internal/kit/certs"
)

// TLS says how the control plane is talked to over TLS. Its files are read for each
// connection, so that renewed certificates are used with the next one.
type TLS = certs.ClientFiles

// credentials are those of one connection.
func (o *Options) credentials() (credentials.TransportCredentials, error) {
	if o.TLS == nil {
		return insecure.NewCredentials(), nil
	}
	conf, err := o.TLS.Config(o.Address)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(conf), nil
}
