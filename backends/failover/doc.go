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
// used, and counts as an error of which it is unknown whether the request was
// recorded. What such a verdict has taken stays taken; leases that it granted
// expire, or are given back by a caller who ends the attempt (limit.EndAttempt).
//
// A Breaker belongs directly around the driver and its observer, and inside
// combine: a call that timed out in a queue says nothing about the store.
//
// A [Local] decides for rules with `on_backend_error: local`: on a backend in
// this process, by the same limits or by this replica's share of them. It
// remembers the keys it admitted units for, and charges the units that still
// count to the primary when that is back: never more than fits there, and
// never a refund. How much that is, the local backend itself knows: a window
// that has ended and a bucket that has refilled owe nothing.
//
// # Requests in flight
//
// A limit on requests in flight is divided like others, at least one for each
// replica, and a lease belongs to the store that granted it. One granted here is not
// charged to the primary, neither when that is back nor later: it would outlive
// its request there. It is renewed and released here, which works as long as it
// lives, whether the primary is away or back. One granted by the primary is not
// known here. Its release during an outage is the primary's to refuse, with an
// error: the caller keeps it and tries again, or lets the lease expire. A
// Local that gets the release finds nothing and reports so (Outcome.Held), and
// passes nothing on. So a caller who does not know where a lease is from brings it to
// both, as long as leases granted here may live, and goes by the primary's word.
//
// # What remains inexact
//
// Where the outcome of a charge is unknown, it is tried again, so units may be
// charged twice: against the caller, as all rounding here. With a share for
// each replica, limits below the number of replicas still give one unit to
// each. Units are charged by the primary's clock when it comes back: across
// the end of a window they may count in the next one. Of requests in flight,
// those that were granted here and those that the primary grants afterwards are
// not counted together: until the former end there may be as many more as this
// replica's share.
//
// What the package does not do: it retries no caller's Take, it has no opinion
// on what an error means for the caller, and it knows no parts of a store. A
// cluster that has lost one node of several answers for the others, and
// counts as answering; breakers for single nodes belong to its driver.
package failover
