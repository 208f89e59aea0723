// Package memory keeps rate-limit state in the process: the backend for one
// replica, for tests, and for what is decided locally while a store is away.
//
// It has no clock and starts no goroutine. State goes when the instants of
// later requests pass its end, or those given to [Backend.Sweep].
//
// What it keeps is bounded by the number of keys, and by the records of sliding
// logs and the requests in flight under all keys together: see [Config].
//
// What the package does not do: it shares nothing with other processes and
// keeps nothing over a restart.
package memory
