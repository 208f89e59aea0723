// Package ratelimit is Envoy's RateLimitService (envoy.service.ratelimit.v3) on top of rules and a backend.
//
// [Service.Decide] makes every answer: it matches the descriptors against the rules, asks the backend once, and turns
// the verdict into statuses, headers and metadata. Package internal/wire/messages decodes [Request] and encodes
// [Response] for transports. Its [Encoder] encodes in advance what is the same in many responses.
//
// Only this package applies policy: shadow and quota mode, when limits are charged, and the answer when the backend
// fails ([descriptors.FailurePolicy]).
//
// # To change it
//
//   - what a request reserves, how its end is read, what becomes of lost ones: reserve.go, costs.go, tokens and lost
//     ones: leases/reservation.go; go test ./ratelimit -run 'Reserv|Report|Lost|Auto'
//   - how many keys a rule has (max_keys): keybudget.go; go test ./ratelimit -run 'Key|Shared'; go test ./test/attack
//     -run NewValues
//   - what is answered when the backend fails, or too much arrives: policy.go; go test ./ratelimit -run
//     'Failure|Overload'
//   - what is known of a decision; headers, metadata, counts, logs of it: decision.go, a row in sinks.go, response.go,
//     counters.go …; go test ./ratelimit
//   - what no rule matches, what a reload changed: coverage.go, shapes.go, reloads.go, descriptors/nomatch.go,
//     descriptors/diff.go, cmd/headgate/insight.go; go test ./ratelimit ./descriptors -run 'Shape|Compare|NewRules'; go
//     test ./cmd/headgate -run Coverage
//   - how policies take the place of rules' limits: policies.go, descriptors/builder.go; go test ./ratelimit -run Polic
//   - series of rules, and how many there may be: series.go; go test ./ratelimit -run Series
//   - metrics by policy, and for which keys: policyseries.go, policies/patterns.go; go test ./ratelimit ./policies
//     ./test/chart -run 'Polic|Pattern'
//   - what the log has of refusals: refusallog.go, names of HTTP requests: internal/kit/web/requestid.go; go test
//     ./ratelimit ./internal/app/server ./internal/kit/web -run 'Refusal|RequestID'
package ratelimit
