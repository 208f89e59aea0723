// Package certs has what clients and servers do with TLS certificates: it reads the files of a client, and decides by
// the names in a certificate who a client is.
//
// # To change it
//
//   - metrics and logs of certificates that expire: validity.go and internal/app/server/certwatch.go; go test
//     ./internal/app/server -run Certif
//   - how a client is known by its certificate: client.go and names.go; go test ./internal/kit/certs
package certs
