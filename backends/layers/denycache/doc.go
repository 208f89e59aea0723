// Package denycache answers for a remote store what is sure to be refused: a
// refused key is refused here until its Retry, without asking the store.
//
// # What it promises
//
// Same key, same or greater cost: refused until T. The package refuses a request
// when it knows that one of its ops, not a shadow, has no room. One known refusal
// settles the request, whatever its other ops are. The store would give the same
// refusal, with the same wait, at the instant that the answer names. For a greater
// cost than was refused the wait may be too short; the next answer gives the rest.
//
// Other figures of the answer may be as old as [Config.MaxAge]. For the op that
// decides, the remaining units are those of the cached refusal. For each other op,
// the figures are those of the store's last refusal of a request with this op, or
// those of an unused limit.
//
// These always reach the store: asking (cost zero), giving back (negative cost),
// shadows alone, and requests with an op that may be charged although the request
// is refused (Each, or because of their limit's overflow). Of a limit that saturates
// a refusal is kept only if nothing is left until its Retry: that of a single unit,
// or any by a fixed window. Of one that lets its callers owe none is kept. And so do requests in flight: one of them may end at any
// moment, on any replica, so a refusal by limit.Concurrency does not hold for the
// next moment and is not cached. A request that has such an op beside others is the
// store's to decide, also because it may have been granted before, and is then
// admitted whatever its other limits say now.
//
// # Why it is sure
//
// A take under the same limit only makes room later, in every algorithm: it
// adds to the window, the log or the weight, and lowers the bucket. Time makes
// room no earlier than Retry said, for this cost and greater ones.
//
// What can make room earlier: units given back, Forget, another limit on the
// same key (a bucket that fills faster leaves more to the slower one, a window
// of another length starts afresh), and a store that loses its state. An op with
// a limit of other figures never meets what was learnt under the old ones.
//
// # For how long
//
// On the replica that sees it, all this takes effect at once: where units are
// given back or a key is forgotten, the key's refusals go before the call and
// after it, and so do those of takes in flight, which may have been decided
// before it. When a take is charged, the key's
// refusals go as well: another limit may have room now. Requests of one slice that
// are answered here are answered as if they had come before the others, but for
// what those give back.
//
// Within [Config.MaxAge], counted from when the store was asked: what other
// replicas give back, reset or raise, and what happened in the store itself. That
// includes what a request over several partitions took: the store gives it back
// some time after the request was refused elsewhere.
// And one thing on the same replica: when takes under two limits on one key are
// in flight at once, as with limits that callers override, a refusal under one
// may outlive room that the other made. After a change of rules, call
// [Backend.Flush].
//
// # Instants
//
// A request without an instant is decided by the store's clock. Its verdict's At
// plus the time since the store was asked is never behind that clock, so that
// refusals end early by up to a round trip and never late. All figures of an
// answer are those of the instant it names. Where ops were learnt at different
// times, the latest instant counts for all. A request with an instant is
// answered from what was learnt at given instants, no later than its own.
//
// # Memory
//
// It is fixed: [Config.MaxKeys] refusals of 85 bytes, in sets of eight. A new
// refusal takes the place of the one that has been longest in its set. Keys are
// kept as 128 bits of two seeded hashes, so that two keys are taken for each
// other less often than memory fails. There is no goroutine.
//
// What the package does not do: it learns nothing from admissions, decides no
// algorithm, and does not judge errors; what it does not answer, the store does.
package denycache
