// Package memory keeps rate-limit state in the process. It is the backend for one replica, for tests, and for local
// decisions while a store is unreachable.
//
// It has no clock and starts no goroutine. State is removed when the instants of later requests, or those given to
// [Backend.Sweep], pass its end.
//
// [Config] bounds the number of keys, and for all keys together the records of sliding logs and the requests in flight.
//
// # To change it
//
//   - how counters are kept in memory: memory.go, shard.go, table.go, entry.go; go test ./backends/memory
//   - what bounds them: config.go, budget.go; go test ./backends/memory
//
// # More
//
// The package shares no state with other processes, and a restart loses its state.
package memory
