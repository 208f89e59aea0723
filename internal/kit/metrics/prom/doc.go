// Package prom turns rows of package metrics into Prometheus' metrics, and serves them. Beside the tests it is the only
// package that knows Prometheus. It is short as there is one kind of row.
//
// # To change it
//
//   - how Prometheus gets rows: prom.go; go test ./internal/kit/metrics/prom
package prom
