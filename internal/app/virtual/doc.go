// Package virtual decides requests as the service does, with counters in memory and at instants that the caller names.
// It is what `headgate test` and `headgate replay` decide with, so that they cannot decide otherwise than serve.
//
// # To change it
//
//   - decisions in a time of their own: world.go; go test ./internal/app/virtual
package virtual
