// Package memory bounds what clients can make a process keep: it finds how much memory and how many files the process
// may use, and counts what is read and not yet decided against a share of the memory. It knows no protocol.
//
// # To change it
//
//   - how much memory the process may use; the pool that all ports share: internal/kit/memory, internal/app/server:
//     internal/app/server/memory.go, for grpc-go internal/app/server/grpcconns.go; go test ./internal/kit/memory
//     ./internal/app/server; go test ./test/attack -run Container
package memory
