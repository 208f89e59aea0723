// Package denycache answers for a remote store what is sure to be refused: a
// refused key is refused here until its Retry, without asking the store.
//
// # What is answered here
//
// A verdict that refuses an op says what the op's limit stood at. Until that
// can have changed, the cache answers in the store's place, and only with the
// very verdict that the store would give at that instant: refused, and every
// field of every outcome right. Where one figure is not known, the store is
// asked. A request is answered here when
//
//   - every op of it costs at least one unit and is known to have no room, and
//   - at least one of them is not a shadow.
//
// All ops, because a verdict has an outcome for each: for an op that has room,
// or may have, what is left is known to the store alone. And because the store
// may have to charge it: an op with Each is charged when its request is refused.
// Known to have no room, it is not charged, and nothing is lost by not asking.
//
// So these always reach the store: asking (cost zero), giving back (negative
// cost), shadows alone, and requests of which some op may have room. And so do
// requests in flight: one of them may end at any moment, on any replica, so a
// refusal by limit.Concurrency tells nothing about the next moment and is not
// kept. A request that has such an op beside others is the store's to decide,
// also because it may have been granted before, and is then admitted whatever
// its other limits say now.
//
// # Why it is sure
//
// A take under the same limit only makes room later, in every algorithm: it
// adds to the window, the log or the weight, and lowers the bucket. Time makes
// room no earlier than Retry said, for this cost and greater ones. What is left
// and what a different cost has to wait is less simple:
//
//   - fixed_window: nothing changes until the window ends; any cost is answered.
//   - token_bucket: the level follows from Retry and Reset and rises evenly; any
//     cost is answered, but in the microsecond in which the rounding of these
//     leaves a figure open.
//   - sliding_log and sliding_window: when which units come back is the store's
//     knowledge. The same cost is answered, where what is left cannot have grown
//     without making room: when it was one unit short, as it is whenever single
//     units are taken. See [Config.LooseRemaining] for the others.
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
// before it. That includes units that a request over several partitions took
// and gave back when it was refused elsewhere. When a take is charged, the key's
// refusals go as well: another limit may have room now, and what is left is
// less. A request that comes behind others in one slice is answered here only if
// none of them, on its way to the store, may be charged for its keys.
//
// Within [Config.MaxAge], counted from when the store was asked: what other
// replicas give back, reset or raise, and what happened in the store itself.
// And one thing on the same replica: when takes under two limits on one key are
// in flight at once, as with limits that callers override, a refusal under one
// may outlive room that the other made. After a change of rules, call
// [Backend.Flush].
//
// While takes on one key are in flight at once, a refusal may give what was left
// a moment before; it is a refusal all the same.
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
