// Package backendtest is the contract of package backends as tests. Every backend, and every layer around one, passes
// it.
//
// The example shows all that a driver's test file needs.
//
// The store may hold other keys: the suite makes its own unique. It closes each handle it opens.
//
// # To change it
//
//   - what every store must pass: a row in checks.go and the file of its subject; go test ./backends/backendtest, whose
//     TestSuiteNoticesEachMutant has a row for each error that the suite must find
//   - what random requests may be: random.go, for leases leases_random.go; go test ./backends/memory
//
// # More
//
// Random checks are the same in every run, unless HEADGATE_TEST_SEED is another number, or "random"; what failed says
// how to repeat it, as in HEADGATE_TEST_SEED=7 go test -run TestConformance/Model. What a Suite does not offer (several
// processes, faults, counts) is skipped, and says so.
//
// # What a driver needs to know
//
// Instants of the model comparison lie an hour ahead of the real clock and move on their own, so a store that ends
// state by itself (a TTL) must count to the instant of limit.Limit.Ends on its own clock, as PEXPIREAT does, not to a
// distance from now. They mostly move forward and sometimes back, but never to before the end of a state that was
// already over: whether that one is still there is the store's business.
//
// How long a state is kept depends on the limit that wrote it. After a limit's window has changed, a state may be gone
// at the end it had under the old one; the suite asks nothing about such a key.
//
// Windows and instants are multiples of Caps.Precision. Waits in outcomes are in microseconds all the same.
//
// What is not compared on a backend with PlainWindows, and has checks of its own: instants that go back, keys whose
// limit changes, and costs below zero on limits that saturate.
//
// What is not compared on a backend whose atomicity is PerPartition:
//
//   - Requests over several groups are sent alone, not within slices.
//   - Their costs below zero count as if they came last.
//   - Of one that was refused, Reset is not compared. Suite.Settle waits until it has left nothing. After it instants
//     do not go back to before it, since units that were taken and given back may leave their instant. Nor do its keys
//     change their limits any more, since they may leave a state of the one they had.
//   - Of one that was refused, Retry of a cost below zero is not compared where another op under its key overflows.
//   - Of those about leases that were refused only the refusal is compared, of those that were granted before nothing,
//     and their keys are forgotten.
package backendtest
