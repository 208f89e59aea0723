// Package xds gets rules from a control plane, such as Envoy Gateway's, as the reference service does: an aggregated
// discovery stream (ADS, state of the world) of RateLimitConfig messages. A [Client] keeps one stream, compiles what
// comes and only then acknowledges it.
//
// # To change it
//
//   - which messages are accepted: size.go, merge.go and translate.go; go test ./descriptors/xds
//   - which rules are in force: apply.go, state.go and domain.go; go test ./descriptors/xds
//   - the file that keeps rules: cache.go and cachewriter.go; go test ./descriptors/xds; go test ./internal/app/server
//     -run XDS
//   - the connection: client.go, stream.go, codec.go, tls.go and pace.go (retries); go test ./descriptors/xds; go test
//     ./internal/app/server -run XDS
//
// # More
//
// Files in layers, from below: what a message may hold (size.go), a message as rules (merge.go, translate.go), which
// rules are in force (domain.go, state.go), the file that keeps them (cache.go), the connection (tls.go, codec.go,
// stream.go), and the client that runs it all (options.go, status.go, client.go).
package xds
