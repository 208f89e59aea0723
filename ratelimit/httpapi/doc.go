// Package httpapi is the admin API of counters: it says over HTTP how the service is, and what limits have counted
// under which keys, and forgets that on demand.
//
// The handlers check form and translate; what a limit has counted says the Service. Every answer that is not a success
// has the form of web.ErrorBody.
//
// # To change it
//
//   - what /admin/top, explain, rules and recent answer: top.go, explain.go, rules.go, what is asked:
//     ratelimit/explain.go, ratelimit/usage.go; go test ./ratelimit/httpapi -run 'Top|Expl|Rules|Hash|Hostile'
//   - the admin API of counters, their keys: ratelimit/httpapi, openapi.json, ratelimit/usage.go,
//     descriptors/countername.go, how stores list keys: backends/*/list.go; go test ./ratelimit/httpapi ./descriptors
//     ./backends/...
//   - the pages / and /limits; what all pages share: page, internal/kit/web/look; go test ./ratelimit/httpapi -run
//     Page; go test ./cmd/headgate -run Pages
package httpapi
