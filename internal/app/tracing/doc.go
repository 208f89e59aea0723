// Package tracing sends spans to an OpenTelemetry collector, as the OTEL_ variables of the process say. Without
// OTEL_TRACES_EXPORTER=otlp it does nothing.
//
// # To change it
//
//   - where spans go, and variables of OpenTelemetry: variables.go (a row) and exporter.go; go test
//     ./internal/app/server -run 'Trac|Collector'; go test ./test/repo -update (renews docs/reference.md)
//
// # More
//
// The files are layers: tracing.go, exporter.go, variables.go.
package tracing
