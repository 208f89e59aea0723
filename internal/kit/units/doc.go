// Package units has the units of time of rate limits, as Envoy's API and the reference service know them.
//
// # To change it
//
//   - how times and amounts are written and read: parse.go, units.go; go test ./internal/kit/units
package units
