//go:build egtest

package egtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// issuer signs the tokens of a case.
var issuer = newIssuer()

func newIssuer() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// bearer returns the request of a user who is known by a token.
func bearer(name string) request {
	text := base64url([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." +
		base64url(fmt.Appendf(nil, `{"sub":"1","name":%q}`, name))
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, issuer, sum[:])
	if err != nil {
		panic(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return header("Authorization", "Bearer "+text+"."+base64url(signature))
}

// authenticated returns the policy by which a route admits bearers of the issuer's tokens, and
// gives their name to the rate limit.
func authenticated(route string) string {
	point, err := issuer.PublicKey.Bytes() // 4, x, y
	if err != nil {
		panic(err)
	}
	keys := fmt.Sprintf(`{"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "x": %q, "y": %q}]}`,
		base64url(point[1:33]), base64url(point[33:]))
	return fmt.Sprintf(`apiVersion: gateway.envoyproxy.io/v1alpha1
kind: SecurityPolicy
metadata: {name: %[1]s, namespace: default}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: %[1]s}]
  jwt:
    providers:
    - name: issuer
      localJWKS: {type: Inline, inline: '%[2]s'}
      claimToHeaders: [{claim: name, header: x-claim-name}]
`, route, keys)
}
