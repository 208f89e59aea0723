// Package reference knows which rules headgate decides otherwise than github.com/envoyproxy/ratelimit, the reference.
//
// # To change it
//
//   - what check --reference finds: a row in differences.go, go test ./test/repo -update renews docs/migrate.md; go
//     test ./descriptors/reference ./test/repo
package reference
