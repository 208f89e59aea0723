// Package persecond keeps the limits per second of a server in a store of their own, as envoyproxy/ratelimit can. What
// programs import has one store: this is for `headgate serve` alone.
//
// # To change it
//
//   - which store keeps limits per second; that calls go alone while one of two is silent: split.go, Alone in
//     internal/wire/unary/config.go; go test ./internal/app/persecond; go test ./test/compat -run SecondRedis
package persecond
