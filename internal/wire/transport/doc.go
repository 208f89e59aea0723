// Package transport serves a [ratelimit.Service] over gRPC, by package unary and by grpc-go, and in JSON.
//
// A [Method] is a value; [Methods] lists those that are served. A new one is a row there, with a file for what it does.
//
// # To change it
//
//   - an RPC method, also for grpc-go and /json: method.go (a row); go test ./ratelimit ./internal/wire/transport
//     ./internal/app/server
package transport
