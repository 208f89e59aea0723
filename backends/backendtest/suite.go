package backendtest

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// A Suite describes the backend to be tested.
type Suite struct {
	// Caps is what the backend promises and is held to.
	Caps backends.Caps
	// Open returns a new handle, which the suite closes.
	Open func(tb testing.TB) backends.Backend
	// Shared says that all handles reach one store.
	Shared bool
	// Rounds is the number of rounds of each random check, and bounds what other checks repeat;
	// zero means 150.
	Rounds int
	// Short leaves out, but in the long form of tests, the checks that are not chosen for stores
	// with the same semantics as one that passes the whole suite.
	Short bool

	// Child is the name of the test function that calls [Child]; empty leaves
	// out the check with several processes. ChildEnv says where the store is.
	Child    string
	ChildEnv []string

	// Settle waits until a handle has given back what refused requests over
	// several groups took, where that does not happen before Take returns.
	Settle func(tb testing.TB, b backends.Backend)
	// Trips returns the number of round trips to the store so far, of all
	// handles together. Nil leaves out the check of AlgorithmCaps.Trips.
	Trips func() int64
	// Stored returns how many entries the store holds. Nil leaves out the
	// check that state goes away by itself.
	Stored func(tb testing.TB) int
	// Faults are ways to hurt the store; nil leaves those checks out.
	Faults *Faults
}

// Faults hurt the store that Suite.Open connects to. What is hurt is healed
// by the end of its check; state may be lost.
type Faults struct {
	// Freeze makes the store silent without closing connections (SIGSTOP, or
	// a proxy that stops forwarding); Thaw undoes it.
	Freeze, Thaw func(tb testing.TB)
	// Kill ends the store; Restart starts one again at the same address.
	Kill, Restart func(tb testing.TB)
}

// An env is what one check works with.
type env struct {
	testing.TB
	s      Suite
	r      *rand.Rand
	prefix string // makes keys unique in a shared store
	step   int64  // Caps.Precision in microseconds
	b      backends.Backend
}

// ahead is how far injected instants lie before the real clock.
const ahead = time.Hour

// patience is the deadline of calls that should simply work.
const patience = 20 * time.Second

func newEnv(tb testing.TB, s Suite) *env {
	if s.Rounds == 0 {
		s.Rounds = 150
	}
	var unique [8]byte
	_, _ = crand.Read(unique[:])
	return &env{
		TB: tb, s: s,
		r:      random.Rand(tb, 1),
		prefix: "t" + hex.EncodeToString(unique[:]),
		step:   max(1, s.Caps.Precision.Microseconds()),
	}
}

// open opens the handle that take and the other helpers use.
func (e *env) open() {
	e.Helper()
	e.b = e.openAnother()
}

func (e *env) openAnother() backends.Backend {
	e.Helper()
	b := e.s.Open(e.TB)
	e.Cleanup(func() {
		if err := b.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	})
	return b
}

// start returns the first injected instant of a check: a whole hour, so that
// common windows start there, an hour or two ahead of the real clock.
func (e *env) start() limit.Instant {
	t := limit.InstantOf(time.Now().Add(2 * ahead).Truncate(ahead))
	return t - t%limit.Instant(e.step)
}

// up rounds an instant up to the backend's precision.
func (e *env) up(t limit.Instant) limit.Instant {
	step := limit.Instant(e.step)
	return (t + step - 1) / step * step
}

// precision is the smallest step of instants.
func (e *env) precision() time.Duration { return time.Duration(e.step) * time.Microsecond }

// key returns a key of its own for name under a.
func (e *env) key(group, name string, a limit.Algorithm) limit.Key {
	return limit.Key{Group: e.prefix + group, Limit: name + "/" + a.String()}
}

// algorithms lists those that count units per time and the backend supports,
// in a fixed order. Leases have checks of their own.
func (e *env) algorithms() []limit.Algorithm {
	var list []limit.Algorithm
	for _, a := range limit.Algorithms() {
		if _, ok := e.s.Caps.Algorithms[a]; ok {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		e.Fatal("Suite.Caps lists no algorithm")
	}
	return list
}

// limit makes a limit, or the nearest one that the backend can keep.
func (e *env) limit(a limit.Algorithm, most int64, window time.Duration) *limit.Limit {
	e.Helper()
	window = e.window(window)
	most = min(most, e.s.Caps.Algorithms[a].MaxUnits)
	l, err := limit.New(limit.Spec{Algorithm: a, Max: most, Window: window})
	if err != nil {
		e.Fatal(err)
	}
	return l
}

// window returns a length of windows that the backend keeps, no shorter than want if there
// is one.
func (e *env) window(want time.Duration) time.Duration {
	for _, w := range e.s.Caps.Windows { // the shortest first
		if w >= want {
			return w
		}
	}
	if n := len(e.s.Caps.Windows); n > 0 {
		return e.s.Caps.Windows[n-1]
	}
	return max(want, e.precision(), limit.MinWindow)
}

// request makes a request of one op.
func request(at limit.Instant, k limit.Key, l *limit.Limit, cost int64) limit.Request {
	return limit.Request{At: at, Ops: []limit.Op{{Key: k, Limit: l, Cost: cost}}}
}

func calm() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// takeAll sends reqs as one slice and wants every one decided.
func (e *env) takeAll(reqs []limit.Request) []limit.Verdict {
	e.Helper()
	ctx, cancel := calm()
	defer cancel()
	out := make([]limit.Verdict, len(reqs))
	e.b.Take(ctx, reqs, out)
	for i := range out {
		if out[i].Err != nil {
			e.Fatalf("request %d of %d: %v\n%s", i, len(reqs), out[i].Err, describe(&reqs[i]))
		}
		if len(out[i].Outcomes) != len(reqs[i].Ops) {
			e.Fatalf("request %d of %d: %d outcomes for %d ops", i, len(reqs), len(out[i].Outcomes), len(reqs[i].Ops))
		}
	}
	return out
}

// settle waits until refused requests have left nothing on e.b.
func (e *env) settle() {
	e.Helper()
	if e.s.Settle != nil {
		e.s.Settle(e.TB, e.b)
	}
}

// manyRounds is the number of Rounds from which nothing is shortened, and fewRounds the one below which
// only a part of all combinations is tried.
const (
	manyRounds = 40
	fewRounds  = 10
)

// times is how often something is done: most times, or fewer at a store with few Rounds.
func (e *env) times(least, most int) int {
	if e.s.Rounds >= manyRounds {
		return most
	}
	return min(max(e.s.Rounds, least), most)
}

// take sends one request and wants it decided.
func (e *env) take(req limit.Request) limit.Verdict {
	e.Helper()
	return e.takeAll([]limit.Request{req})[0]
}

// takeOne sends one op of its own and returns its outcome.
func (e *env) takeOne(at limit.Instant, k limit.Key, l *limit.Limit, cost int64) limit.Outcome {
	e.Helper()
	return e.take(request(at, k, l, cost)).Outcomes[0]
}

func (e *env) forget(keys ...limit.Key) {
	e.Helper()
	ctx, cancel := calm()
	defer cancel()
	if err := e.b.Forget(ctx, keys); err != nil {
		e.Fatalf("Forget: %v", err)
	}
}
