// Command headgate is an external rate-limit service for Envoy.
//
// # To change it
//
//   - a command: a file for each, and what it asks a service in internal/app/client, exit codes: exit.go, --format,
//     completion: format.go, a row of family_test.go; go test ./cmd/headgate
package main
