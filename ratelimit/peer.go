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

// plainIdentity replaces what is too long or not printable by its hash.
func plainIdentity(s string) string {
	if len(s) <= maxAbout && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// identityIn is that of a grpc-go call.
func identityIn(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return Identity(&info.State)
		}
	}
	return ""
}

// PeerOf names the peer of a grpc-go call, to count what it has: its identity,
// or else its host.
func PeerOf(ctx context.Context) string {
	if id := identityIn(ctx); id != "" {
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
