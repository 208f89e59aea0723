// Package httpapi is the admin API of counters: it says over HTTP how the service is, and what limits have counted
// under which keys, and forgets that on demand.
//
// The handlers check form and translate; the Service knows what a limit has counted. Every answer that is not a success
// has the form of web.ErrorBody.
//
// # To change it
//
//   - what /admin/top, explain, rules and recent answer: top.go, explain.go, rules.go, ratelimit/explain.go and
//     ratelimit/usage.go; go test ./ratelimit/httpapi -run 'Top|Expl|Rules|Hash|Hostile'
//   - the admin API of counters: handlers.go, routes.go, openapi.json and ratelimit/usage.go; go test
//     ./ratelimit/httpapi
//   - the keys of counters, and how stores list them: descriptors/countername.go and backends/*/list.go; go test
//     ./ratelimit/httpapi ./descriptors ./backends/...
//   - the pages / and /limits, and what all pages share: page and internal/kit/web/look; go test ./ratelimit/httpapi
//     -run Page; go test ./cmd/headgate -run Pages
package httpapi
