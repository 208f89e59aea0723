// Package breaker keeps calls short while a store is away.
//
// A [Backend] stands around a remote one. It lets Takes through while the store answers (closed), fails them at once
// while it does not (open), and after a while lets one of them, or a Ping of its own, find out whether the store is
// back (half-open). A dead store costs its callers nothing but the first few timeouts.
//
// # To change it
//
//   - when a store is slow, what the log has of outages: pace.go, sweep.go, backends/layers/outages.go; go test
//     ./backends/layers ./backends/layers/breaker; go test ./test/attack -run Slow
//   - when the breaker opens: breaker.go, pulse.go, backends/internal/circuit; go test ./backends/layers/breaker
//
// # More
//
//	closed    -- failures in a row, or too large a share of them --> open
//	open      -- a delay, jittered, longer after each failed probe --> half-open
//	half-open -- the probe succeeds --> closed
//	half-open -- the probe fails --> open
//
// What a store answers shows that it is alive: an error of its own, such as being full or a row that is locked
// (backends.ErrDeclined), is about the requests that get it, and never opens the breaker for others.
//
// The breaker starts no goroutine for a Take: that a backend returns by its context's deadline is part of the contract
// and tested for each of them. What it does guard against is a verdict that comes after the deadline: it is not used,
// and counts as an error of which it is unknown whether the request was recorded. What such a verdict has taken stays
// taken; leases that it granted expire, or are given back by a caller who ends the attempt (limit.EndAttempt).
//
// A breaker belongs directly around the driver and its observer, and inside package coalesce: a call that timed out in
// a queue says nothing about the store.
//
// What the package does not do: it retries no caller's Take, it has no opinion on what an error means for the caller,
// and it knows no parts of a store. A cluster that has lost one node of several answers for the others, and counts as
// answering; breakers for single nodes belong to its driver.
package breaker
