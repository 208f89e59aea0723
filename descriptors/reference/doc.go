// Package reference lists the rules that headgate decides differently than the reference,
// github.com/envoyproxy/ratelimit.
//
// # To change it
//
//   - what check --reference finds: differences.go (a row); go test ./descriptors/reference; go test ./test/repo
//     -update (renews docs/migrate.md)
package reference
