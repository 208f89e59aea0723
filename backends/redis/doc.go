// Package redis keeps rate-limit state in Redis 6.0 or later, or Valkey:
// one server, a Sentinel group or a Cluster.
//
// A Take is one call of a script, take.lua, which decides as package limit
// does. README.md states what is guaranteed, how keys are laid out and what a
// decision costs.
//
// What the package does not do: it does not decide what happens when Redis is
// away, it keeps no local state, and it does not evict.
package redis
