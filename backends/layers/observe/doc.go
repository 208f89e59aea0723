// Package observe reports to a recorder what a backend is asked, how long it takes and how it fails.
//
// What the package does not do: it knows no metrics library, names no metric and never changes an answer.
//
// # To change it
//
//   - what is reported of a call to a store: metrics.go, observe.go; go test ./backends/layers/observe
package observe
