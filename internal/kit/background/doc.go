// Package background has what work in the background needs: goroutines that cannot end the process, and logs that a
// flood of events cannot flood. A panic becomes an error for those who wait for the goroutine, a line in the log with
// the stack, and a count.
//
// Packages that decide (backends, ratelimit) start goroutines only through this package; test/repo checks this.
//
// # To change it
//
//   - how goroutines start, stop and report panics: background.go, log.go, metrics.go; go test
//     ./internal/kit/background
//   - how work gives back what others wait for: yield.go; go test ./internal/kit/web -run Turn
package background
