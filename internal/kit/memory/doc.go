// Package memory bounds what clients can make a process keep: it finds how much memory and how many files the process
// may use, and counts what is read and not yet decided against a share of the memory. It knows no protocol.
//
// # To change it
//
//   - how much memory the process may use: limit.go and internal/app/server/memory.go; go test ./internal/kit/memory
//     ./internal/app/server; go test ./test/attack -run Container
//   - the pool that all ports share: pool.go and internal/app/server/grpcconns.go (for grpc-go); go test
//     ./internal/kit/memory ./internal/app/server
package memory
