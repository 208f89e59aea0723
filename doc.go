// Package headgate limits requests in process, by the rules and the stores that `headgate serve` has. Services in front
// of which no Envoy stands use it, and so do jobs, queues and clients of other people's APIs.
//
// # To change it
//
//   - what the library offers: options.go, limiter.go (what runs), check.go, lease.go, held.go (renewals) and
//     decision.go; go test .
//
// # More
//
//	limiter, err := headgate.Open(ctx, headgate.Options{
//		Backend: "redis://localhost:6379",
//		Rules:   []headgate.Rules{headgate.Files("rules/")},
//	})
//	…
//	defer limiter.Close()
//	decision, err := limiter.Check(ctx, "shop", headgate.Describe("tenant", "acme"))
//
// A program has the stores that it imports, beside memory: this one needs
//
//	import _ "github.com/headgate-rls/headgate/backends/redis"
//
// Rules say what is limited: see docs/rules.md in the repository. A [Limiter] has the same engine as the service: the
// same rules, algorithms, layers around the store, failure policies and metrics. Processes that share a store share its
// counters, also with `headgate serve`.
//
//   - [Limiter.Check] takes units of limits per window. [Limiter.Peek] asks without taking, [Limiter.Refund] gives
//     back, [Limiter.Reset] forgets.
//   - [Limiter.Acquire] also counts requests in flight. Its [Lease] ends with the request.
//   - With Options.Policies, limits come from a database and change while the program runs.
//   - Options.Metrics publishes metrics: package metrics does so for Prometheus. Options.Tracer makes spans: package
//     tracing does so with OpenTelemetry.
//   - Package middleware limits the requests of a net/http server, package middleware/grpclimit those of a gRPC server.
//
// A store that fails does not fail its callers: the rule's on_backend_error decides, and [Decision].Degraded says so.
// Every call returns within Options.Timeout, or earlier by the deadline of its context.
//
// No two limiters share anything in the program. A Limiter starts goroutines, which end before [Limiter.Close] returns.
package headgate
