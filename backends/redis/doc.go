// Package redis keeps rate-limit state in Redis 6.0 or later, or Valkey: one server, a Sentinel group or a Cluster.
//
// A Take is one call of a script (package script), which decides as package limit does. With layout=envoy it is a
// pipeline of INCRBY where that suffices. README.md states what is guaranteed, how keys are laid out and what a
// decision costs.
//
// What the package does not do: it does not decide what happens when Redis is away, it counts nothing by itself, and it
// does not evict.
//
// # To change it
//
//   - how counters are written in Redis, keys, layouts: a row in keys.go, script/states.lua, script/state_write.lua;
//     without a script windows.go and trips.go, for layout=envoy counting.go; go test ./backends/redis; for
//     layout=envoy also go test ./test/compat -run Canary
//   - how alternatives are sent, and which of them are chosen: choices.go; go test ./backends/redis -run Alternatives
//   - what a reply of Redis may announce: replies.go; go test ./backends/redis -run Repl
//   - how a connection begins, and what the end of one without an answer means: greeting.go; go test ./backends/redis
//     -run 'Twemproxy|Address|Port'
//   - what the servers must be able to do, which is asked before the first request: a row in probe.go; where keys are
//     apart cluster.go decides, and registry.go stores rows; go test ./backends/redis -run 'Spread|Address|Imitations'
//   - what Redis is asked about itself: vitals.go; go test ./backends/redis -run 'LookedAt|Right'
package redis
