// Command headgate is an external rate-limit service for Envoy.
//
// # To change it
//
//   - a command: its file, internal/app/client (what it asks a service) and exit_test.go (a row); go test
//     ./cmd/headgate
//   - exit codes: exit.go; go test ./cmd/headgate
//   - --format and completion: format.go; go test ./cmd/headgate
package main
