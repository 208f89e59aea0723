// Package redis keeps rate-limit state in Redis 6.0 or later, or Valkey:
// one server, a Sentinel group or a Cluster.
//
// A Take is one call of a script (package script), which decides as package limit
// does. With layout=envoy it is a pipeline of INCRBY where that suffices.
// README.md states what is guaranteed, how keys are laid out and what a
// decision costs.
//
// What the package does not do: it does not decide what happens when Redis is
// away, it counts nothing by itself, and it does not evict.
package redis
