// Package tracing makes OpenTelemetry spans of decisions. It is a package of its own, so that only programs that import
// it have OpenTelemetry in them.
//
// # To change it
//
//   - what spans say of a call: tracing.go and ratelimit/tracing.go; go test ./ratelimit ./internal/app/server -run
//     'Span|Trac'
package tracing
