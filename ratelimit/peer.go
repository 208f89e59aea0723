package ratelimit

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Identity returns who a client is by its certificate, which must have been
// verified: the first URI in it (SPIFFE), else the first DNS name, else its
// subject; "" without one. It stays the same when the certificate is renewed.
func Identity(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	leaf := state.VerifiedChains[0][0]
	switch {
	case len(leaf.URIs) > 0:
		return plainIdentity("uri:" + leaf.URIs[0].String())
	case len(leaf.DNSNames) > 0:
		return plainIdentity("dns:" + leaf.DNSNames[0])
	}
	return plainIdentity("subject:" + leaf.Subject.String())
}

// plainIdentity replaces an identity that is too long or not printable by its hash.
func plainIdentity(s string) string {
	if len(s) <= maxMetadata && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// identityOf returns the identity of a grpc-go call's client.
func identityOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return Identity(&info.State)
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
