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
//   - what a request reserves, and how its end is read: reserve.go and costs.go; go test ./ratelimit -run
//     'Reserv|Report|Auto|Figure'; go test ./test/attack -run Budget
//   - which calls ask and which report: reserve.go; for several backends together.go; what is said where none of them
//     reserves: unasked.go; go test ./ratelimit -run 'Ask|Together|SaySo'; go test ./internal/wire/transport
//   - tokens of reservations, and reservations whose end never comes: leases/reservation.go; go test ./ratelimit -run
//     'Reserv|Lost'
//   - which descriptor of several is charged (choose): choose.go, limit/alternatives.go; go test ./ratelimit -run
//     'Cand|Cho'; go test ./test/llm -run 'CallsGo|Routed'
//   - how an answer says that a limit is nearly used up (warn_at): near.go; go test ./ratelimit -run Warn
//   - how many keys a rule has (max_keys): keybudget.go; go test ./ratelimit -run 'Key|Shared'; go test ./test/attack
//     -run NewValues
//   - the answer when the backend fails, or too much arrives: policy.go; go test ./ratelimit -run 'Failure|Overload'
//   - the answer where a later version has written a counter: later.go; go test ./ratelimit -run Later
//   - what a decision records: decision.go; go test ./ratelimit
//   - what reads the record: sinks.go (a row), response.go (headers, metadata), counters.go, refusallog.go and
//     tracing.go; go test ./ratelimit
//   - requests that no rule matches: coverage.go, unknowndomains.go, shapes.go and descriptors/nomatch.go; go test
//     ./ratelimit -run 'Shape|Unknown'; go test ./cmd/headgate -run 'Coverage|Unknown'
//   - what a reload changed: reloads.go, descriptors/diff.go and cmd/headgate/insight.go; go test ./ratelimit
//     ./descriptors -run 'Compare|NewRules'
//   - how policies take the place of rules' limits: policies.go and descriptors/builder.go; go test ./ratelimit -run
//     Polic
//   - series of rules, and how many there may be: series.go; go test ./ratelimit -run Series
//   - metrics by policy, and for which keys: policyseries.go and policies/patterns.go; go test ./ratelimit ./policies
//     ./test/chart -run 'Polic|Pattern'
//   - what the log says of refusals: refusallog.go and internal/kit/web/requestid.go (names of HTTP requests); go test
//     ./ratelimit ./internal/app/server ./internal/kit/web -run 'Refusal|RequestID'
//
// # More
//
// What amount: auto reserves is a key's figure. It begins with the rule's default, rises at once to what a request has
// cost, and halves after 16 requests in a row, over more than a minute, that each cost at most half of it. Nothing that
// other keys do changes it. No request reserves less than the rule's min, and a key has at most budget ÷ min open
// reservations: the store refuses more.
package ratelimit
