// Package web has what HTTP endpoints share: listeners and the bounds of servers, the one form of errors, strict
// reading of JSON, readiness, and the guard in front of admin paths.
//
// # To change it
//
//   - floods of requests over HTTP, and whose turn it is: turns.go and internal/wire/unary/floods.go (gRPC); go test
//     ./internal/kit/web ./internal/wire/unary -run 'Flood|Turn'; go test ./test/attack -run Floods
//   - who may use admin paths: guard.go, internal/app/config/admin.go and internal/kit/jwks (JWTs); go test
//     ./internal/kit/web ./internal/kit/jwks ./internal/app/server -run 'Guard|JWT|Admin|Token'
//   - what pages of other sites may ask: browsers.go; go test ./internal/kit/web -run Sites
//   - bounds on HTTP, connections, bodies, answers: server.go, conns.go, bodies.go, answers.go and encode.go; go test
//     ./internal/kit/web -run 'Connections|Bodies|Answers|Lists'; go test ./test/attack -run Readers
package web
