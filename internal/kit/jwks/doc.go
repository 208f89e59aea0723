// Package jwks verifies JSON Web Tokens by a set of public keys (JWKS, RFC 7517) in a file or at a URL, which it reads
// again as time passes.
//
// It accepts three signatures: RS256, ES256 and EdDSA. It rejects all others, also "none" and those with a shared
// secret. It never uses a key that the token itself brings.
//
// # To change it
//
//   - which tokens are valid: verify.go and jwks.go; go test ./internal/kit/jwks
//   - how keys are read, and read again: keys.go and jwks.go; go test ./internal/kit/jwks
//   - who may use admin paths: internal/kit/web/guard.go and internal/app/config/admin.go; go test ./internal/kit/web
//     ./internal/app/server -run 'Guard|JWT|Admin|Token'
package jwks
