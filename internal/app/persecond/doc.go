// Package persecond keeps the limits per second of a server in a store of their own, as envoyproxy/ratelimit can. What
// programs import has one store: this is for `headgate serve` alone.
//
// # To change it
//
//   - which store keeps limits per second: split.go; go test ./internal/app/persecond; go test ./test/compat -run
//     SecondRedis
//   - calls that go alone while one of two stores is silent: split.go and internal/wire/unary/config.go (Alone); go
//     test ./internal/app/persecond
package persecond
