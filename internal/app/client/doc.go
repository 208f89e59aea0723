// Package client asks a running headgate: for decisions and its health over gRPC, for slots and their configs over
// HTTP. Its errors name the flags of the commands.
//
// # To change it
//
//   - what commands ask a running service: all files; go test ./internal/app/client
package client
