// Package xds gets rules from a control plane, such as Envoy Gateway's, as the reference service does: an aggregated
// discovery stream (ADS, state of the world) of RateLimitConfig messages. A [Client] keeps one stream, compiles what
// comes and only then acknowledges it.
//
// # To change it
//
//   - rules by xDS, the protocol, what is accepted, what is kept: all files; go test ./descriptors/xds
//     ./internal/app/server -run XDS
//
// # More
//
// Files in layers, from below: what a message may hold (size.go), a message as rules (merge.go, translate.go), which
// rules are in force (domain.go, state.go), the file that keeps them (cache.go), the connection (tls.go, codec.go,
// stream.go), and the client that runs it all (options.go, status.go, client.go).
package xds
