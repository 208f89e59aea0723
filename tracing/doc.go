// Package tracing makes OpenTelemetry spans of decisions. It is a package of its own, so that only programs that import
// it have OpenTelemetry in them.
package tracing
