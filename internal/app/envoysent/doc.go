// Package envoysent says what the rules of a domain need that a configuration of Envoy does not send.
//
// The package envoyconf makes such configurations; this one only reads them, and is small.
//
// # To change it
//
//   - what is missed: sent.go; go test ./internal/app/envoysent
package envoysent
