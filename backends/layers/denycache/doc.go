// Package denycache refuses for a remote store what the store has just refused.
//
// # To change it
//
//   - what is refused without asking the store: denycache.go; go test ./backends/layers/denycache
//   - what is known of a refusal, how it takes little memory: cache.go, packed.go; go test ./backends/layers/denycache
//
// # More
//
// Same key, same limit, same or greater cost: refused until T, where T is the refusal's Retry, but not for more than a
// second after the store was asked. One known refusal settles a request, unless it is a shadow's. The wait is exact for
// the same cost; for a greater one it may be too short, and the next answer gives the rest. What remains is as old as
// the refusal. The other ops of the request get the figures that the store last gave them beside a refusal, or those of
// an unused limit.
//
// # What always reaches the store
//
//   - A cost of zero (asking) or less (giving back).
//   - Requests in flight (limit.Concurrency), because one of them may end at any moment, on any replica; and every
//     request that has such an op.
//   - What may be charged although its request is refused: ops with Each, and costs that may overflow. A refusal by a
//     limit that saturates is kept only if nothing is left until its Retry, and one by a limit that lends never.
//
// # While the store cannot be asked
//
// A request that gets an error (backends.ErrUnavailable: no answer, an open circuit breaker, a full queue) is refused
// if one of its ops is known to be refused until later than now, however long ago the store said so. The verdict says
// that it is recalled. So what was refused stays refused in an outage, whatever policies say. For this the cache also
// keeps refusals of limits that lend or saturate, and of questions: a question counts as a cost of one. It keeps none
// of requests in flight, because one that ends makes room. Nothing is recalled after a reset or a refund on this
// replica, after the store has admitted the same cost, or under a changed limit. A reset by another replica that this
// one has not heard of takes effect when the store is asked again.
//
// # What may be old
//
// Under one limit a take only makes room later, and time makes room no earlier than Retry said. What makes room earlier
// is a refund, a reset (Forget), a take under another limit on the same key, or a store that loses its state. On the
// replica that does it, a refund or a reset takes effect at once, also for refusals that are on their way from the
// store. A changed limit is another limit: it never meets what was learnt under the old one. All else takes effect
// within a second: what other replicas do, takes under two limits on one key that are in flight together, and units
// that a store of several partitions takes for a refused request and gives back.
//
// A request without an instant is decided by the store's clock. The time that has passed is counted from before the
// store was asked, so that a refusal ends early by up to a round trip and never late.
//
// Memory is fixed: 100,000 refusals of 49 bytes, in sets of eight, in each of which a new one takes the place of one
// that is over, or else of the oldest. A key is kept as 64 bits of a seeded hash in the set that another one chooses,
// because clients choose keys and must not choose places. A refusal that does not fit (a cost of 2^32 units, a wait of
// 407 days) is not kept.
package denycache
