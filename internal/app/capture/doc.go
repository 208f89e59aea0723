// Package capture writes what is asked of a service into a file, or sends it to those who ask for it, as lines of JSON
// that `headgate replay` reads. It delays no answer: what it cannot write in time it drops, and counts.
//
// # To change it
//
//   - what sees requests beside their answers: ratelimit/tap.go; go test ./ratelimit ./internal/app/capture
//   - captures: line.go, stream.go (the queue), capture.go (files) and http.go; go test ./internal/app/capture; go test
//     ./cmd/headgate -run Capture
package capture
