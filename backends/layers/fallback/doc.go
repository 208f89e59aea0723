// Package fallback keeps limits in force while a store is away.
//
// A [Backend] decides for rules with `on_backend_error: local`: on a store in this process, by the same limits or by
// this replica's share of them. It remembers the keys it admitted units for, and charges the units that still count to
// the primary when that is back: never more than fits there, and never a refund. How much that is at most, the local
// store itself knows: a window that has ended and a bucket that has refilled owe nothing.
//
// # To change it
//
//   - what decides in an outage: fallback.go, shares.go; go test ./backends/layers/fallback
//   - how units are charged when the store is back: debts.go, reconcile.go; go test ./backends/layers/fallback
//
// # Many outages
//
// What is charged stays counted here, until its window ends, and what the primary has no room for is owed on. So over
// any window all outages together, however short they are and however many, admit no more than one share of each
// replica beyond the limit. That holds while the local store and the table of debts have room (Config.MaxKeys).
//
// # Requests in flight
//
// A limit on requests in flight is divided like others, at least one for each replica, and a lease belongs to the store
// that granted it. One granted here is not charged to the primary, neither when that is back nor later: it would
// outlive its request there. It is renewed and released here, which works as long as it lives, whether the primary is
// away or back. One granted by the primary is not known here. Its release during an outage is the primary's to refuse,
// with an error: the caller keeps it and tries again, or lets the lease expire. A fallback that gets the release finds
// nothing and reports so (Outcome.Held), and passes nothing on. So a caller who does not know where a lease is from
// brings it to both, as long as leases granted here may live, and goes by the primary's word.
//
// # What remains inexact
//
// Where the outcome of a charge is unknown, it is tried again, so units may be charged twice: against the caller, as
// all rounding here. With a share for each replica, limits below the number of replicas still give one unit to each.
// Units are charged by the primary's clock when it comes back: across the end of a window they may count in the next
// one. Of requests in flight, those that were granted here and those that the primary grants afterwards are not counted
// together: until the former end there may be as many more as this replica's share.
//
// What a limit with the overflow debt let callers owe here beyond one limit is not charged to the primary.
//
// What the package does not do: it does not find out whether the primary is away. Its callers ask it when the primary
// has failed, and signal it when that is back.
package fallback
