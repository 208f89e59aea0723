package jwks

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"

	"github.com/go-jose/go-jose/v4"
)

// Bounds of a set of keys.
const (
	maxBytes = 1 << 20
	maxKeys  = 100
)

// minRSA is the shortest RSA key that is used, in bits.
const minRSA = 2048

// algorithms are the signatures that are accepted.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// parse reads a set of keys, and returns those that verify one of the algorithms. Others are left
// out, as RFC 7517 wants it; it is an error if none is left.
func parse(name string, r io.Reader) ([]jose.JSONWebKey, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxBytes)
	}
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("%s is no JWKS: %w", name, err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%s has %d keys, more than %d", name, len(set.Keys), maxKeys)
	}
	var keys []jose.JSONWebKey
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(text) == nil && verifies(&key) != "" {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no public key for RS256, ES256 or EdDSA", name)
	}
	return keys, nil
}

// verifies returns the algorithm whose signatures the key verifies; "" if we do not accept it. A key
// has one algorithm, whatever a token says.
func verifies(key *jose.JSONWebKey) (a jose.SignatureAlgorithm) {
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		if public.N.BitLen() >= minRSA {
			a = jose.RS256
		}
	case *ecdsa.PublicKey:
		if public.Curve == elliptic.P256() {
			a = jose.ES256
		}
	case ed25519.PublicKey:
		a = jose.EdDSA
	}
	if key.Use != "" && key.Use != "sig" || key.Algorithm != "" && key.Algorithm != string(a) || !key.Valid() {
		return ""
	}
	return a
}
