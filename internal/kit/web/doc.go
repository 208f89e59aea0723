// Package web has what HTTP endpoints share: listeners and the bounds of servers, the one form of errors, strict
// reading of JSON, readiness, and the guard in front of admin paths.
//
// # To change it
//
//   - whose turn it is, floods of gRPC, requests over HTTP: internal/wire/unary/floods.go, turns.go; go test
//     ./internal/wire/unary ./internal/kit/web -run 'Flood|Turn'; go test ./test/attack -run Floods
//   - who may use admin paths: guard.go, internal/app/config/admin.go, JWTs: internal/kit/jwks; go test
//     ./internal/kit/web ./internal/kit/jwks ./internal/app/config ./internal/app/server -run 'Guard|JWT|Admin|Token'
//   - bounds on HTTP, connections, bodies: server.go, conns.go, bodies.go; go test ./internal/kit/web -run
//     'Connections|Bodies'
package web
