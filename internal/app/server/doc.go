// Package server is everything that `headgate serve` runs: the listeners, the limits and the slots behind them,
// readiness, and the drain at the end.
//
// # To change it
//
//   - metrics and logs of certificates and handshakes: certwatch.go, internal/kit/certs/validity.go and
//     internal/wire/handshake/metrics.go; go test ./internal/app/server -run 'Certif|Handshake'
//   - later versions on the same store: formats.go; go test ./internal/app/server -run Formats; go test ./test/former
//   - readiness, and what follows rules: rules.go and internal/kit/web/ready.go; go test ./internal/app/server
//   - start, drain, listeners: server.go, grpc.go, http.go and internal/kit/web/listen.go; go test
//     ./internal/app/server ./cmd/headgate ./test/e2e
//   - what the debug port tells, and to whom: debug.go, internal/kit/web/browsers.go and internal/kit/settings/shown.go
//     (secrets); go test ./internal/app/server ./internal/kit/web -run 'Debug|Sites|Hidden'; go test ./test/attack -run
//     Secrets
//   - what the server has beside limits (slots, policies, …): additions.go (a file with an opener of an addition) and
//     build.go (a row); go test ./internal/app/server
//   - which builds have it: build.go, internal/app/config/build_rlsonly.go (settings that a build lacks) and
//     cmd/headgate/build.go (commands); go test ./test/repo -run RateLimitsOnly; go test ./internal/app/server
package server
