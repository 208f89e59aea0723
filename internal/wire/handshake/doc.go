// Package handshake bounds what TLS handshakes take from a server: CPU time and memory.
//
// A client that has not shown a certificate yet can have a server sign for each message of a few hundred bytes, and
// keep up to a quarter of a MiB for the rest of a message that never comes. So here handshakes compute in turns, which
// leaves the other cores to calls. Together they keep a bounded number of bytes.
//
// # To change it
//
//   - what TLS handshakes may take: handshake.go; go test ./internal/wire/handshake
//   - where handshakes are bounded: internal/wire/unary/conn.go and internal/app/server/grpc.go; go test
//     ./internal/wire/unary ./internal/app/server -run Handshake
//
// # More
//
// What the package does not do: it bounds no time. The server of the connection closes it when the handshake takes too
// long.
package handshake
