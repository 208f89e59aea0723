// Package certs has what clients and servers do with TLS certificates: it reads the files of a client, and decides by
// the names in a certificate who a client is.
//
// # To change it
//
//   - what is said of certificates that expire, and of handshakes that fail: validity.go,
//     internal/app/server/certwatch.go, internal/wire/handshake/metrics.go; go test ./internal/app/server -run
//     'Certif|Handshake'
package certs
