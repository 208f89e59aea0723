package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxIdentity bounds an identity, in bytes.
const maxIdentity = 256

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
	if len(s) <= maxIdentity && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}
