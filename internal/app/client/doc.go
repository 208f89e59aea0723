// Package client asks a running headgate: for decisions and its health over gRPC, for slots and their configs over
// HTTP. Its errors name the flags of the commands.
//
// # To change it
//
//   - what commands ask over gRPC: ask.go, health.go and dial.go; go test ./internal/app/client
//   - what commands ask over HTTP: api.go, slots.go and dial.go; go test ./internal/app/client
package client
