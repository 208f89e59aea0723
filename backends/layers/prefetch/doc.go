// Package prefetch takes units of a limit ahead and spends them in this process, so that most requests need no trip to
// the store. At any time, a process holds at most n-1 units of a limit under a key, where n is the limit's Share, and
// the store has counted all of them as spent. So fixed_window never admits too much, and any other algorithm admits at
// most R*(n-1) units more than docs/algorithms.md says, where R is the number of processes that share the store. A
// request may be refused up to R*(n-1) units too early (one more for sliding_window). With `local_share: auto`, all
// replicas together hold at most a hundredth of the limit.
//
// # To change it
//
//   - what is admitted without asking the store (local_share): prefetch.go, holding.go, shard.go; go test
//     ./backends/layers/prefetch
//   - how many units are taken ahead (local_share: auto): auto.go, pace.go, queue.go; go test
//     ./backends/layers/prefetch
//
// # More
//
// It is for limits with a Share of n > 1 (`local_share: n` in rules) and nothing else: an op without one costs a
// comparison. An op that needs a trip brings units for later ones along: in the same call, behind all that the caller
// sent, the store is asked for as many more as make n with the op's own cost. These are held, and ops under the same
// key and limit are paid from them.
//
// # What is paid here
//
// An op is paid here if it costs no more than is held: in full, or not at all. An op of cost zero, which only asks, is
// paid here if anything is held. If all ops of a request are paid here, it is admitted without the store. Otherwise the
// other ops go to the store, which decides for the whole request. If the store refuses it, what was paid here is given
// back, except for ops with Each, which are charged in any case. If the store fails, or says that the request was
// granted before (by the lease of a limit on concurrency), all of it is given back. Shadow ops are paid like others.
// Refunds always go to the store.
//
// The store charges what a limit takes of a cost that does not fit (its overflow). When it has done so, the held units
// are spent, too: they were charged before, and nothing must be left. Other processes keep theirs.
//
// Taking ahead never causes a refusal: it is a request of its own, which the store decides last. If there is no room
// for it, it is not tried again before the store's Retry is over, or an answer says that n units are left. Near a limit
// each op thus has its own trip, as without a share, and none has two.
//
// # Shares that follow the traffic
//
// With [limit.AutoShare] (`local_share: auto`), n depends on how many units of the key were requested in the last
// second: n is one and a half times the units of a tenth of a second, or, for a slow key, of half a second, but then
// only a few units. n-1 is at most a hundredth of what the store had left at its last answer, divided by the number of
// replicas. So n is 1 near a limit, and nothing is taken ahead there. n is also 1 until the replicas are counted, and
// while the store has not answered for a second. Replicas count each other in the store's registry, every two seconds
// and 10 ms for each of them.
//
// When a third of n is left, [Backend.Run] takes more units. It collects keys for 5 ms, so that they share trips. No
// request waits for it. Run returns units ([limit.Op.AsOf]) when a key is unused for a second, when its traffic falls,
// and when the process ends: units of the current window, units that a bucket lacks, and the units of a log that were
// taken last.
//
// All replicas together thus hold at most a hundredth of the limit: a replica that finds others takes nothing ahead for
// about three seconds, until they have counted it, and starts over after a minute without traffic. Replicas may hold
// twice as much after the store has lost its data. A process that is killed loses the units that it holds.
//
// # What it costs in exactness
//
// At any time, a process holds at most n-1 units of a limit under a key; those on their way from the store and those
// paid for requests that are not decided yet are among them. Let R be the number of processes that share the store, and
// everything by the store's clock.
//
// Admitted too much: what is paid here was charged to the store before. So
//
//   - fixed_window: nothing. Units are spent in the window they were charged to or never: no window holds more than its
//     limit. (A request is counted when it is paid, also if the rest of it is decided after the window's end.)
//   - the others: an interval holds what was charged to the store within it, for which the algorithm's own bound holds,
//     and what was held at its beginning. That is at most R*(n-1) units more than docs/algorithms.md says for it.
//
// Refused too early: the store counts held units as spent. So what is refused would have had less than R*(n-1) units of
// room to spare if nothing had been taken ahead (one more for sliding_window, which rounds). A process that is alone
// and has one caller at a time refuses single units when the store would, and not earlier.
//
// Units of a share that is a number, and that are never spent, expire, and are not given back. They no longer count in
// the store then, with these exceptions, which are losses against the caller:
//
//   - token_bucket: a unit counts until the bucket is full. Units are held for as long as an empty bucket takes to
//     fill, at least a minute, from when some were taken last: a process loses at most n-1 of them in each such time.
//   - Close, Forget, and a key that was unused for a minute when there was no room for another ([Config.MaxKeys]).
//   - Where the store failed, it may have charged what was to be taken ahead.
//
// Two more things follow from there being units that the store counts as spent. A refund of more than was taken, which
// the store cuts off at an unused key, may be cut off up to R*(n-1) units later; still no more is admitted, less what
// is given back, than the limit. And Forget reaches what this process holds, not what others do: they may spend that on
// top of the fresh limit.
//
// # Answers
//
// Every field is filled. Remaining is what the store had left when it was asked last and the units held here. It does
// not know what others took since; and a single op of that cost may be refused, as nothing is paid partly here and
// partly there. Reset is what the store said last. Retry of an admitted op is zero while there is room for its like,
// else Reset, which is the longest it can be. Refusals are the store's own. While takes under a key are in flight at
// once, one of them may be refused just before another brings units.
//
// # Time
//
// Clocks of processes are not compared with the store's: its instant, At, and the time passed here since it was asked
// give an instant that is never behind the store's clock. Units that may have expired by it are not spent; the store's
// next answer shows, by its clock, whether they have. A store whose clock is set back or slewed, or a process that is
// suspended in a way that its monotonic clock does not show, can move the end of a window by as much, until the next
// trip. Requests with an instant of their own spend what was taken by such requests, and windows are those of their
// instants.
//
// # Memory
//
// At most [Config.MaxKeys] keys are known. When there are so many, new ones are not shared, unless one has not been
// used for a minute: callers choose keys, and a flood of them must not make others lose their units. Keys whose share
// follows the traffic are forgotten when they are unused for a second. There is no goroutine but that of Run.
//
// What the package does not do: it decides no algorithm, holds no leases of limits on concurrency, repeats no call, and
// judges no error.
package prefetch
