// Package compat reads the environment of envoyproxy/ratelimit, the reference, and says which settings of headgate have
// the same effect. It has three tables: what becomes of each variable (variables.go), which setting is made of which
// variables (settings.go), and which variable of OpenTelemetry is (tracing.go).
//
// # To change it
//
//   - what a variable of envoyproxy/ratelimit does: variables.go, settings.go, redis.go, xds.go and tracing.go; go test
//     ./internal/app/compat ./test/compat
package compat
