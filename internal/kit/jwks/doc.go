// Package jwks verifies JSON Web Tokens by a set of public keys (JWKS, RFC 7517) in a file or at a URL, which it reads
// again as time passes.
//
// It knows three signatures: RS256, ES256 and EdDSA. Whatever a token says about itself, others, "none" and those with
// a shared secret are refused, and keys that a token brings are not used.
//
// # To change it
//
//   - who may use admin paths: internal/kit/web/guard.go, internal/app/config/admin.go, JWTs: internal/kit/jwks; go
//     test ./internal/kit/web ./internal/kit/jwks ./internal/app/config ./internal/app/server -run
//     'Guard|JWT|Admin|Token'
package jwks
