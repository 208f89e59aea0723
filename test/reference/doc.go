// Package reference runs the integration tests of envoyproxy/ratelimit, which nobody here wrote, against `headgate
// ratelimit`. They come from the Go module proxy when the test runs; nothing of them is in this repository. In place of
// the package that starts the reference in their process they get tools/reference/runner, which starts headgate.
//
// # To change it
//
//   - which of them fail, and why: differences_test.go; go test ./test/reference -update
//   - the servers that they need: servers_test.go
//   - the commit that they are of: tools/reference/go.mod
package reference
