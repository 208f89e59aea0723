// Package metrics is what features say of themselves in figures: rows of one table, which the documentation is made
// from too. A feature declares its rows beside the code that counts, and counts in the types of this package, which
// write an atomic number and nothing else. The code that collects rows knows none of the features.
//
// What the package does not do: it knows no metrics library. Package prom turns rows into Prometheus' metrics.
//
// # To change it
//
//   - a metric: a row in the file of metrics beside what counts (such as slots/metrics.go); go test ./test/repo -update
//     (renews docs/reference.md)
//   - what rows can say: row.go, counter.go and histogram.go; go test ./internal/kit/metrics/...
//   - how Prometheus gets them: prom; go test ./internal/kit/metrics/...
package metrics
