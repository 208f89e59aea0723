// Package server is everything that `headgate serve` runs: the listeners, the limits and the slots behind them,
// readiness, and the drain at the end.
//
// # To change it
//
//   - what is said of certificates that expire, and of handshakes that fail: internal/kit/certs/validity.go,
//     certwatch.go, internal/wire/handshake/metrics.go; go test ./internal/app/server -run 'Certif|Handshake'
//   - readiness, what follows rules: internal/kit/web/ready.go, rules.go; go test ./internal/app/server
//   - start, drain, listeners: server.go, grpc.go, http.go, internal/kit/web/listen.go; go test ./internal/app/server
//     ./cmd/headgate ./test/e2e
//   - what the server has beside limits (slots, policies, …), and which builds have it: a file with an opener of an
//     addition (additions.go) and a row of build.go, settings that a build lacks: built in internal/app/config,
//     commands: cmd/headgate/build.go; go test ./test/repo -run RateLimitsOnly; go test ./internal/app/server
package server
