// Package backendtest is the contract of package backends as tests. Every
// backend, and every decorator around one, passes it.
//
// A driver's test file needs little more than this:
//
//	func open(tb testing.TB) backends.Backend {
//		b, err := redis.New(redis.Config{Addr: os.Getenv("HEADGATE_TEST_REDIS")})
//		if err != nil {
//			tb.Fatal(err)
//		}
//		return b
//	}
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, backendtest.Suite{
//			Caps: redis.Caps(), Open: open, Shared: true,
//			Child: "TestChild", ChildEnv: []string{"HEADGATE_TEST_REDIS=" + addr},
//		})
//	}
//
//	// TestChild is one of several processes of TestConformance.
//	func TestChild(t *testing.T) { backendtest.Child(t, open) }
//
//	func BenchmarkTake(b *testing.B) { backendtest.Benchmark(b, redis.Caps(), open) }
//
// The store may hold other keys: the suite makes its own unique. It closes
// each handle it opens.
//
// Random checks are the same in every run, unless HEADGATE_TEST_SEED is another
// number, or "random"; what failed says how to repeat it, as in
// HEADGATE_TEST_SEED=7 go test -run TestConformance/Model. What a Suite does
// not offer (several processes, faults, counts) is skipped, and says so.
//
// # What a driver needs to know
//
// Instants of the model comparison lie an hour ahead of the real clock and move
// on their own, so a store that ends state by itself (a TTL) must count to the
// instant of limit.Ends on its own clock, as PEXPIREAT does, not to a distance
// from now. They mostly move forward and sometimes back, but never to before
// the end of a state that was already over: whether that one is still there is
// the store's business.
//
// How long a state is kept depends on the limit that wrote it. After a limit's
// window has changed, a state may be gone at the end it had under the old one;
// the suite asks nothing about such a key.
//
// Windows and instants are multiples of Caps.Precision. Waits in outcomes are
// in microseconds all the same.
//
// What is not compared: requests over several groups on a backend whose
// atomicity is PerPartition are sent alone, not within slices, their costs below
// zero count as if they came last, of one that was refused Reset is not compared,
// Suite.Settle waits until it has left nothing, and after it instants do not go back to before it, since units that were
// taken and given back may leave their instant, nor do its keys change their
// limits any more, since they may leave a state of the one they had; of those
// about leases that were refused only the refusal is compared, of those that
// were granted before nothing, and their keys are forgotten; requests of several ops on a backend whose
// atomicity is PerOp are not sent at all.
package backendtest
