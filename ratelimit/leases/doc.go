// Package leases keeps track of requests in flight. Each has a lease: a unit that a limit counts until the request ends
// or the lease expires.
//
// A [Signer] turns leases into tokens, which leave the process: Envoy keeps a token in the request's dynamic metadata
// and sends it back when the request ends. A [Tracker] ends and renews the leases of tokens, publishes how many
// requests are in flight, and ends the leases of proxies that are gone.
//
// The package knows no rules and no requests: package ratelimit decides which request gets a lease, and calls the
// tracker.
//
// # To change it
//
//   - a lease when calls or the store fail: grant.go, return.go and releaser.go (retries); go test ./ratelimit/...
//   - leases of proxies that are gone: owners.go and presence.go; go test ./ratelimit/...
//   - how many requests are in flight, and where: tally.go; go test ./ratelimit/...
package leases
