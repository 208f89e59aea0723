package transport

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/headgate-rls/headgate/internal/kit/certs"
)

// identityOf returns the identity of a grpc-go call's client.
func identityOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return certs.Identity(&info.State)
		}
	}
	return ""
}

// PeerOf returns a name of a grpc-go call's client under which its streams are
// counted: its identity, or else its host.
func PeerOf(ctx context.Context) string {
	if id := identityOf(ctx); id != "" {
		return id
	}
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.Network() // a Unix socket
	}
	return host
}
