// Package limit is headgate's core: the rate-limit algorithms as total, deterministic functions of (state, operation,
// instant).
//
// It has no clock, no randomness and no I/O, and imports the standard library only. [Step] decides one operation,
// [Decide] a whole request. They are the reference model: every backend must answer as they do, and the conformance
// suite in backends/backendtest compares each backend with them.
//
// # To change it
//
//   - how an algorithm decides: step_*.go, then backends/redis/script/*.lua as backends/redis/README.md says; go test
//     ./limit ./backends/...
//   - windows of the calendar: calendar.go, backends/redis/script/step.lua, descriptors/rulefile/calendar.go; go test
//     ./limit ./backends/... ./descriptors/rulefile -run Calendar
//   - what a limit may be: limit.go; go test ./limit
//   - how states are written as bytes: encode.go; go test ./limit ./backends/internal/remote
//   - what is known of each algorithm: the table in algorithms.go, traits.go; go test ./limit
//   - requests in flight: leases.go, step_concurrency.go, then backends/redis/script/lease_*.lua; go test ./limit
//     ./backends/... -run 'Concurrency|Lease'
//   - requests of which one of several groups of ops is charged: alternatives.go, then
//     backends/redis/script/alternatives.lua; go test ./limit -run Alternatives; go test ./backends/... -run
//     /Alternatives
//   - reservations, how they are settled: settle.go, then backends/redis/script/settlement.lua and
//     backends/redis/script/reserved.lua, in the rule language descriptors/reserve.go; go test ./limit -run Settle;
//     go test ./backends/... -run LeaseModel
//
// # More
//
// Arithmetic is on integers that stay below 2^53, so that Go, Lua (whose numbers are doubles) and SQL give the same
// answers. Where a division leaves a remainder, rounding goes against the caller: a wait is rounded up, what is left is
// rounded down, a rate is never exceeded.
//
// What the package does not do: it knows nothing of rules, of protocols, of what happens when a backend fails, or of
// who may ask.
package limit
