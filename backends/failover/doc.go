// Package failover keeps calls short and limits in force while a store is
// away.
//
// A [Breaker] stands around a remote backend. It lets Takes through while the
// store answers (closed), fails them at once while it does not (open), and
// after a while lets one of them, or a Ping of its own, find out whether the
// store is back (half-open). A dead store costs its callers nothing but the
// first few timeouts.
//
//	closed    -- failures in a row, or too large a share of them --> open
//	open      -- a delay, jittered, longer after each failed probe --> half-open
//	half-open -- the probe succeeds --> closed
//	half-open -- the probe fails --> open
//
// The Breaker starts no goroutine for a Take: that a backend returns by its
// context's deadline is part of the contract and tested for each of them. What
// it does guard against is a verdict that comes after the deadline: it is not
// used, and leases in it are given back. What else such a verdict has taken
// stays taken.
//
// A Breaker belongs directly around the driver and its observer, and inside
// combine: what has waited in a queue in vain says nothing about the store.
//
// A [Local] decides for rules with `on_backend_error: local`: on a backend in
// this process, by the same limits or by this replica's share of them. It
// remembers the keys it admitted units for, and charges the units that still
// count to the primary when that is back: never more than fits there, and
// never a refund. How much that is, the local backend itself knows: a window
// that has ended and a bucket that has refilled owe nothing.
//
// # What remains inexact
//
// Where the outcome of a charge is unknown, it is tried again, so units may be
// charged twice: against the caller, as all rounding here. With a share for
// each replica, limits below the number of replicas still give one unit to
// each. Units are charged by the primary's clock when it comes back: across
// the end of a window they may count in the next one.
//
// What the package does not do: it retries no caller's Take, it has no opinion
// on what an error means for the caller, and it knows no parts of a store. A
// cluster that has lost one node of several answers for the others, and
// counts as answering; breakers for single nodes belong to its driver.
package failover
