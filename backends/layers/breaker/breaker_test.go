package breaker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

const ms = time.Millisecond

func newStore() *remote.Moody { return remote.NewMoody(memory.New(memory.Config{})) }

// A scene is a breaker whose changes are written down with their time, in a
// synctest bubble.
type scene struct {
	*testing.T
	s     *remote.Moody
	b     *Backend
	began time.Time
	mu    sync.Mutex
	log   []string
}

// play runs story in a bubble, which fails if a goroutine is left over.
func play(t *testing.T, cfg Config, story func(sc *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sc := &scene{T: t, s: newStore(), began: time.Now()}
		if cfg.Rand == nil {
			cfg.Rand = func() float64 { return 0 }
		}
		cfg.OnChange = func(from, to State, why error) {
			sc.mu.Lock()
			defer sc.mu.Unlock()
			sc.log = append(sc.log, fmt.Sprintf("%d %v-%v", time.Since(sc.began).Milliseconds(), from, to))
			if (why != nil) != (to == Open) {
				t.Errorf("%v to %v, why: %v", from, to, why)
			}
		}
		sc.b = New(sc.s, cfg, time.Now)
		story(sc)
		if err := sc.b.Close(); err != nil || !sc.s.Closed {
			t.Errorf("closed: %v, error %v", sc.s.Closed, err)
		}
	})
}

// take takes one request with a budget and returns its error.
func (sc *scene) take(budget time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	return sc.takeIn(ctx, 1)[0].Err
}

func (sc *scene) takeIn(ctx context.Context, n int) []limit.Verdict {
	reqs, out := remote.Requests(n)
	sc.b.Take(ctx, reqs, out)
	return out
}

// fail makes the store fail until the breaker opens.
func (sc *scene) fail() {
	sc.Helper()
	sc.s.Behave(remote.Down)
	for i := 0; sc.b.State() != Open; i++ {
		if i == 5 {
			sc.Fatal("it does not open")
		}
		sc.take(20 * ms)
	}
}

func (sc *scene) wantState(want State) {
	sc.Helper()
	synctest.Wait()
	if got := sc.b.State(); got != want || sc.b.Stats().State != want {
		sc.Errorf("%v, want %v", got, want)
	}
}

func (sc *scene) wantLog(want ...string) {
	sc.Helper()
	synctest.Wait()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if !slices.Equal(sc.log, want) {
		sc.Errorf("changes\n\t%s\nwant\n\t%s", strings.Join(sc.log, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func (sc *scene) wantCalls(takes, pings int) {
	sc.Helper()
	if t, p := sc.s.Calls(); t != takes || p != pings {
		sc.Errorf("%d takes and %d pings reached the store, want %d and %d", t, p, takes, pings)
	}
}

func (sc *scene) wantNotApplied(err error) {
	sc.Helper()
	if !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, backends.ErrNotApplied) {
		sc.Errorf("error %v", err)
	}
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Suite{
		Caps: memory.Caps(), Rounds: 50, Short: true,
		Open: func(testing.TB) backends.Backend {
			return New(memory.New(memory.Config{}), Config{}, time.Now)
		},
	})
}

func TestConformanceFaults(t *testing.T) {
	var s *remote.Moody
	freeze := func(testing.TB) { s.Behave(remote.Mute) }
	backendtest.Run(t, backendtest.Suite{
		Caps: memory.Caps(), Rounds: 10, Short: true,
		Open: func(testing.TB) backends.Backend {
			s = newStore()
			return New(s, Config{}, time.Now)
		},
		Faults: &backendtest.Faults{
			Freeze: freeze, Thaw: func(testing.TB) { s.Behave(nil) },
			Kill: func(testing.TB) { s.Behave(remote.Down) }, Restart: func(testing.TB) { s.Behave(nil) },
		},
	})
}

// do performs one letter of a script.
func (sc *scene) do(what rune) {
	ways := map[rune]func(context.Context) error{
		'.': remote.Well, 'u': remote.Down, 't': remote.Mute, 'h': remote.Mute, 'x': remote.Mute, 'l': remote.Slow(21 * ms),
		's': remote.Slow(19 * ms), 'L': remote.Slow(21 * ms),
		'i': func(context.Context) error { return backends.ErrInvalid },
		'n': func(context.Context) error {
			return fmt.Errorf("%w: %w", backends.ErrUnsupported, backends.ErrNotApplied)
		},
		'c': func(context.Context) error { return backends.ErrCorrupt },
		'd': func(context.Context) error { return fmt.Errorf("full: %w", backends.ErrDeclined) },
		'o': func(context.Context) error { return errors.New("of no kind") },
	}
	sc.s.Behave(ways[what])
	budget, n := 20*ms, 1
	switch what {
	case 'h':
		budget = 1 * ms
	case 'm':
		n = 2
		sc.s.Partly = remote.ErrDown
	}
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	if strings.ContainsRune("xL", what) {
		time.AfterFunc(5*ms, cancel)
	}
	sc.takeIn(ctx, n)
	sc.s.Partly = nil
}

// TestFailuresOpenTheBreaker: what opens the breaker, and when.
func TestFailuresOpenTheBreaker(t *testing.T) {
	never := Config{Failures: -1, Share: -1}
	share := Config{Failures: -1, Share: 0.5, Window: 10}
	for _, c := range []struct {
		name, script string
		cfg          Config
		opens        bool // with the last letter
	}{
		{"five in a row", "uuuuu", Config{}, true},
		{"timeouts", "ttttt", Config{}, true},
		{"late verdicts", "lllll", Config{}, true},
		{"errors of no kind", "ooooo", Config{}, true},
		{"all kinds", "utlou", Config{}, true},
		{"slow is not late", "ssssssssss", Config{}, false},
		{"a success between", "uuuu.uuuu.uuuu", Config{}, false},
		{"then five", "uuuu.uuuuu", Config{}, true},
		{"corrupt is an answer", "uuuucuuuu", Config{}, false},
		{"an error of the store's own is an answer", strings.Repeat("d", 300), Config{}, false},
		{"and not only a pause", "uuuuduuuu", Config{}, false},
		{"half a slice is an answer", "uuuumuuuu", Config{}, false},
		{"the caller's faults", "iiiiiiiiiinnnnnnnnnn", Config{}, false},
		{"cancelled by the caller", "xxxxxxxxxx", Config{}, false},
		{"cancelled and late", "LLLLLLLLLL", Config{}, false},
		{"hurried callers", "hhhhhhhhhh", Config{}, false},
		{"neither good nor bad", "uiunuxuLhu", Config{}, true},
		{"half of ten", "u.u.u.u.u", share, true},
		{"less than half of ten", "u..u..u..u..u..u..u..u..u..", share, false},
		{"old ones go", "uuuu.......uuuu......uuuu", share, false},
		{"never", strings.Repeat("u", 300), never, false},
		{"one", "u", Config{Failures: 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, c.cfg, func(sc *scene) {
				last := len(c.script) - 1
				for i, what := range c.script {
					if sc.b.State() != Closed {
						t.Fatalf("%v before letter %d", sc.b.State(), i)
					}
					sc.do(what)
					if i < last {
						sc.wantState(Closed)
					}
				}
				if want := map[bool]State{true: Open}[c.opens]; sc.b.State() != want {
					t.Errorf("%v, want %v", sc.b.State(), want)
				}
			})
		})
	}
}

// TestOpenIsFree: while it is open nothing reaches the store, no time passes,
// and the refusal says why.
func TestOpenIsFree(t *testing.T) {
	play(t, Config{}, func(sc *scene) {
		sc.fail()
		sc.wantCalls(5, 0)
		sc.s.Behave(nil)
		for range 100 {
			err := sc.take(20 * ms)
			sc.wantNotApplied(err)
			if !strings.Contains(err.Error(), "no answer") {
				t.Error(err)
			}
		}
		sc.wantNotApplied(sc.b.Forget(context.Background(), []limit.Key{{}}))
		sc.wantCalls(5, 0)
		if d := time.Since(sc.began); d != 0 {
			t.Errorf("%v passed", d)
		}
		if err := sc.b.Ping(context.Background()); err != nil {
			t.Errorf("Ping is about the store: %v", err)
		}
		sc.wantState(Open)
		if got, want := sc.b.Stats(), (Stats{State: Open, Failed: 5, Refused: 100, Opened: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestSuccessfulProbeClosesTheBreaker: the first Take after the delay is the probe.
func TestSuccessfulProbeClosesTheBreaker(t *testing.T) {
	play(t, Config{}, func(sc *scene) {
		sc.fail()
		sc.s.Behave(nil)
		time.Sleep(99 * ms)
		sc.wantState(Open)
		time.Sleep(2 * ms)
		sc.wantState(HalfOpen)
		if err := sc.take(20 * ms); err != nil {
			t.Error(err)
		}
		for range 10 {
			if err := sc.take(20 * ms); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Hour)
		sc.wantLog("0 closed-open", "100 open-half-open", "101 half-open-closed")
		sc.wantCalls(16, 0)
	})
}

// TestStoreThatDeclinesPingsIsBack: a store that is full, say, when it comes back is asked again: it can decide some
// requests.
func TestStoreThatDeclinesPingsIsBack(t *testing.T) {
	reported := 0
	play(t, Config{OnDeclined: func(why error) {
		reported++
		if !errors.Is(why, backends.ErrDeclined) {
			t.Error(why)
		}
	}}, func(sc *scene) {
		sc.fail()
		sc.s.Behave(func(context.Context) error { return backends.ErrDeclined })
		time.Sleep(time.Second)
		sc.wantState(Closed)
		if err := sc.take(20 * ms); !errors.Is(err, backends.ErrDeclined) || reported != 1 {
			t.Errorf("%v, reported %d times, want 1", err, reported)
		}
	})
}

// TestPingsProbeWithoutTraffic: without traffic the breaker finds out by itself, with
// delays that grow to their bound.
func TestPingsProbeWithoutTraffic(t *testing.T) {
	play(t, Config{}, func(sc *scene) {
		sc.fail()
		time.AfterFunc(6*time.Second, func() { sc.s.Behave(nil) })
		time.Sleep(time.Minute)
		sc.wantLog("0 closed-open",
			"100 open-half-open", "200 half-open-open",
			"400 open-half-open", "500 half-open-open",
			"900 open-half-open", "1000 half-open-open",
			"1800 open-half-open", "1900 half-open-open",
			"2900 open-half-open", "3000 half-open-open",
			"4000 open-half-open", "4100 half-open-open",
			"5100 open-half-open", "5200 half-open-open",
			"6200 open-half-open", "6300 half-open-closed")
		sc.wantCalls(5, 8)
	})
}

// TestFlappingStoreIsProbedLessOften: a store that answers probes and then fails again is
// asked ever less often, until it has stayed for a while.
func TestFlappingStoreIsProbedLessOften(t *testing.T) {
	play(t, Config{}, func(sc *scene) {
		var delays []int64
		flap := func() {
			sc.fail()
			began := time.Now()
			for sc.b.State() == Open {
				time.Sleep(ms)
			}
			delays = append(delays, time.Since(began).Milliseconds())
			sc.s.Behave(nil)
			if err := sc.take(20 * ms); err != nil {
				t.Error(err)
			}
			sc.wantState(Closed)
		}
		for range 5 {
			flap()
			time.Sleep(500 * ms)
		}
		time.Sleep(time.Second)
		flap()
		for i, want := range []int64{100, 200, 400, 800, 1000, 100} {
			if delays[i] < want || delays[i] > want+1 {
				t.Errorf("delays of %d ms", delays)
				break
			}
		}
	})
}

// TestOnlyOneCallerProbes: of a hundred callers one gets through, the others do not wait.
func TestOnlyOneCallerProbes(t *testing.T) {
	play(t, Config{}, func(sc *scene) {
		sc.fail()
		time.Sleep(100 * ms)
		sc.wantState(HalfOpen)
		sc.s.Behave(remote.Slow(10 * ms))
		var passed, refused atomic.Int64
		var all sync.WaitGroup
		began := time.Now()
		for range 100 {
			all.Go(func() {
				if err := sc.take(20 * ms); err == nil {
					passed.Add(1)
				} else {
					sc.wantNotApplied(err)
					if time.Since(began) == 0 {
						refused.Add(1)
					}
				}
			})
		}
		all.Wait()
		if passed.Load() != 1 || refused.Load() != 99 {
			t.Errorf("%d passed, %d were refused at once", passed.Load(), refused.Load())
		}
		sc.wantCalls(6, 0)
		sc.wantState(Closed)
	})
}

// TestProbeOfNoUse: callers who cancel, are in a hurry or ask nonsense leave
// the probe to a Ping.
func TestProbeOfNoUse(t *testing.T) {
	for _, what := range "xhin" {
		play(t, Config{}, func(sc *scene) {
			sc.fail()
			time.Sleep(100 * ms)
			sc.wantState(HalfOpen)
			sc.s.Unhurt = true
			sc.do(what)
			sc.wantState(Closed)
			sc.wantCalls(6, 1)
			if t.Failed() {
				t.Fatalf("%c", what)
			}
		})
	}
}

// TestFailedProbeDoublesTheDelay: a probe's failure opens the breaker for twice as long.
func TestFailedProbeDoublesTheDelay(t *testing.T) {
	for what, took := range map[rune]int{'u': 0, 't': 20, 'l': 21} {
		play(t, Config{}, func(sc *scene) {
			sc.fail()
			time.Sleep(100 * ms)
			sc.wantState(HalfOpen)
			sc.do(what)
			sc.wantState(Open)
			time.Sleep(250 * ms)
			sc.wantLog("0 closed-open", "100 open-half-open", fmt.Sprint(100+took, " half-open-open"),
				fmt.Sprint(300+took, " open-half-open"))
			sc.wantCalls(6, 0)
		})
	}
}

// TestProbeIsBounded: a caller with much time does not make the probe long.
func TestProbeIsBounded(t *testing.T) {
	play(t, Config{}, func(sc *scene) {
		sc.fail()
		sc.s.Behave(remote.Mute)
		time.Sleep(100 * ms)
		sc.wantState(HalfOpen)
		if err := sc.take(time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		sc.wantState(Open)
		sc.wantLog("0 closed-open", "100 open-half-open", "600 half-open-open")
	})
}

// TestHungProbesKeepNothingMore: a store that ignores its context keeps what it got, and no
// more: neither the state nor goroutines depend on it.
func TestHungProbesKeepNothingMore(t *testing.T) {
	play(t, Config{}, func(sc *scene) {
		sc.fail()
		back := make(chan struct{})
		sc.s.Behave(func(context.Context) error { <-back; return nil })
		time.Sleep(100 * ms)
		sc.wantState(HalfOpen)
		hung := make(chan error)
		go func() { hung <- sc.take(20 * ms) }()
		sc.wantState(HalfOpen)
		time.Sleep(10 * time.Second)
		sc.wantState(Open)
		sc.wantCalls(6, 1)
		goroutines := runtime.NumGoroutine()
		time.Sleep(time.Minute)
		synctest.Wait()
		sc.wantCalls(6, 1)
		if n := runtime.NumGoroutine(); n > goroutines+5 { // of some 50 probes
			t.Errorf("%d goroutines, %d before", n, goroutines)
		}
		close(back)
		if err := <-hung; !errors.Is(err, backends.ErrUnavailable) || errors.Is(err, backends.ErrNotApplied) {
			t.Errorf("a verdict that came a minute late: %v", err)
		}
		sc.wantState(Open) // what hung says nothing about now
		time.Sleep(1200 * ms)
		sc.wantState(Closed)
	})
}

// TestCloseWithHungPing: Close does not wait for ever.
func TestCloseWithHungPing(t *testing.T) {
	back := make(chan struct{})
	play(t, Config{}, func(sc *scene) {
		back = make(chan struct{})
		sc.fail()
		sc.s.Behave(func(context.Context) error { <-back; return nil })
		time.Sleep(300 * ms)
		sc.wantCalls(5, 1)
		began := time.Now()
		if err := sc.b.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != 500*ms {
			t.Errorf("Close took %v", d)
		}
		close(back)
	})
}

// TestCloseEndsPing: a Ping under way ends with Close, and no timer is left to
// begin another.
func TestCloseEndsPing(t *testing.T) {
	play(t, Config{}, func(sc *scene) {
		sc.fail()
		sc.s.Behave(remote.Mute)
		time.Sleep(300 * ms)
		sc.wantCalls(5, 1)
		began := time.Now()
		if err := sc.b.Close(); err != nil || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		time.Sleep(time.Minute)
		sc.wantCalls(5, 1)
		sc.wantState(HalfOpen)
	})
}

// TestStaleTakeHasNoSay: a Take of an earlier period has no say in this one.
func TestStaleTakeHasNoSay(t *testing.T) {
	for _, way := range []func(context.Context) error{remote.Well, remote.Down} {
		play(t, Config{Failures: 1}, func(sc *scene) {
			back := make(chan struct{})
			sc.s.Behave(func(ctx context.Context) error { <-back; return way(ctx) })
			old := make(chan error)
			go func() { old <- sc.take(time.Hour) }()
			synctest.Wait()
			sc.fail()
			close(back)
			<-old
			sc.wantState(Open)
			sc.wantLog("0 closed-open")

			back = make(chan struct{})
			time.Sleep(100 * ms)
			sc.wantState(HalfOpen)
			sc.s.Behave(func(ctx context.Context) error { <-back; return way(ctx) })
			go func() { old <- sc.take(time.Hour) }()
			synctest.Wait()
			time.Sleep(600 * ms) // the probe is given up
			sc.s.Behave(nil)
			time.Sleep(300 * ms)
			sc.wantState(Closed)
			close(back)
			<-old
			sc.wantState(Closed)

			back = make(chan struct{})
			sc.s.Behave(func(ctx context.Context) error { <-back; return way(ctx) })
			go func() { old <- sc.take(time.Hour) }()
			synctest.Wait()
			sc.fail()
			sc.s.Behave(nil)
			time.Sleep(3 * time.Second)
			sc.wantState(Closed)
			close(back)
			<-old
			sc.wantState(Closed)
		})
	}
}

// TestVerdictAfterTheDeadlineIsNotUsed: a verdict after the deadline is not used.
func TestVerdictAfterTheDeadlineIsNotUsed(t *testing.T) {
	play(t, Config{}, func(sc *scene) {
		sc.s.Behave(remote.Slow(30 * ms))
		ctx, cancel := context.WithTimeout(context.Background(), 20*ms)
		defer cancel()
		for _, v := range sc.takeIn(ctx, 2) {
			if !errors.Is(v.Err, backends.ErrUnavailable) || errors.Is(v.Err, backends.ErrNotApplied) || v.Admitted {
				t.Errorf("%+v", v)
			}
		}
		if s := sc.b.Stats(); s.Late != 1 || s.Failed != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestVerdictsInTimeCountBesideLateOnes: where a part of the slice did not answer, the
// other verdicts came in time, unless Take is later than that explains.
func TestVerdictsInTimeCountBesideLateOnes(t *testing.T) {
	for wait, used := range map[time.Duration]bool{20 * ms: true, 24 * ms: true, 25 * ms: false, 90 * ms: false} {
		play(t, Config{}, func(sc *scene) {
			sc.s.Partly = remote.ErrDown
			sc.s.Behave(remote.Slow(wait))
			ctx, cancel := context.WithTimeout(context.Background(), 20*ms)
			defer cancel()
			out := sc.takeIn(ctx, 3)
			if !errors.Is(out[1].Err, remote.ErrDown) {
				t.Error(out[1].Err)
			}
			for _, i := range []int{0, 2} {
				if v := &out[i]; (v.Err == nil) != used || v.Admitted != used {
					t.Errorf("after %v: %+v", wait, v)
				}
			}
		})
	}
}

// TestEveryTakeHasADeadline: who brings none gets one; who has no time left is not sent.
func TestEveryTakeHasADeadline(t *testing.T) {
	play(t, Config{}, func(sc *scene) {
		sc.s.Behave(remote.Mute)
		if err := sc.takeIn(context.Background(), 1)[0].Err; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := sc.b.Ping(context.Background()); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if d := time.Since(sc.began); d != time.Second {
			t.Errorf("both took %v", d)
		}
		sc.wantCalls(1, 1)
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		for range 10 {
			sc.wantNotApplied(sc.take(0))
			sc.wantNotApplied(sc.takeIn(cancelled, 1)[0].Err)
		}
		sc.wantCalls(1, 1)
		sc.wantState(Closed)
		sc.b.Take(cancelled, nil, nil)
	})
}

// TestOverloadIsNoFailureOfTheStore: calls beyond the bound fail at once, and are no
// failure of the store.
func TestOverloadIsNoFailureOfTheStore(t *testing.T) {
	play(t, Config{MaxInFlight: 3}, func(sc *scene) {
		sc.s.Behave(remote.Slow(10 * ms))
		results := make(chan error, 3)
		for range 3 {
			go func() { results <- sc.take(20 * ms) }()
		}
		synctest.Wait()
		for range 10 {
			sc.wantNotApplied(sc.take(20 * ms))
		}
		sc.wantCalls(3, 0)
		if s := sc.b.Stats(); s.InFlight != 3 || s.Overloaded != 10 || s.State != Closed {
			t.Errorf("%+v", s)
		}
		for range 3 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if err := sc.take(20 * ms); err != nil || sc.b.Stats().InFlight != 0 {
			t.Errorf("%v, %+v", err, sc.b.Stats())
		}
	})
}

// TestStoreDecidesSoonAfterItsReturn: two seconds after the store's return, if not before, it decides
// again, however it was away and whether there is traffic or not.
func TestStoreDecidesSoonAfterItsReturn(t *testing.T) {
	r := random.Rand(t, 3)
	for i := range 60 {
		away := time.Duration(r.Int64N(int64(20 * time.Second)))
		traffic, way := i%2 == 0, []func(context.Context) error{remote.Down, remote.Mute}[i/2%2]
		play(t, Config{Rand: r.Float64}, func(sc *scene) {
			sc.s.Behave(way)
			run := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * ms) {
					if traffic || sc.b.State() == Closed {
						sc.take(20 * ms)
					}
				}
			}
			run(away)
			sc.s.Behave(nil)
			run(2 * time.Second)
			if err := sc.take(20 * ms); err != nil || sc.b.State() != Closed {
				t.Errorf("2 s after %v: %v, %v", away, sc.b.State(), err)
			}
		})
	}
}

// TestChangesAreReportedInOrder: changes are reported one by one and in order, though callers
// collide and the callback calls back.
func TestChangesAreReportedInOrder(t *testing.T) {
	s := newStore()
	var b *Backend
	var last State
	var told, inside atomic.Int64
	cfg := Config{Failures: 2, Delay: 20 * time.Microsecond, MaxDelay: 20 * time.Microsecond,
		PingAfter: 50 * time.Microsecond}
	cfg.OnChange = func(from, to State, _ error) {
		if inside.Add(1) != 1 || from != last || to == from {
			t.Errorf("from %v to %v after %v, %d at once", from, to, last, inside.Load())
		}
		last = to
		told.Add(1)
		time.Sleep(10 * time.Microsecond)
		inside.Add(-1)
		reqs, out := remote.Requests(1)
		b.Take(context.Background(), reqs, out)
		b.Stats()
	}
	var coin atomic.Int64
	s.Behave(func(context.Context) error {
		if coin.Add(1)/20%2 == 0 {
			return nil
		}
		return remote.ErrDown
	})
	b = New(s, cfg, time.Now)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			reqs, out := remote.Requests(2)
			for i := range 2000 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Microsecond)
				b.Take(ctx, reqs, out)
				cancel()
				if i%16 == 0 {
					time.Sleep(20 * time.Microsecond)
				}
			}
		})
	}
	all.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if told.Load() < 10 {
		t.Errorf("only %d changes", told.Load())
	}
	t.Logf("%d changes, %+v", told.Load(), b.Stats())
}

func opened(tb testing.TB) *Backend {
	s := newStore()
	s.Behave(remote.Down)
	b := New(s, Config{Failures: 1, Delay: time.Hour, MaxDelay: time.Hour}, time.Now)
	reqs, out := remote.Requests(1)
	b.Take(context.Background(), reqs, out)
	if b.State() != Open {
		tb.Fatal(b.State())
	}
	tb.Cleanup(func() { _ = b.Close() })
	return b
}

func TestDoesNotAllocate(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	reqs, out := remote.Requests(3)
	for name, b := range map[string]*Backend{"open": opened(t),
		"closed": New(memory.New(memory.Config{}), Config{}, time.Now)} {
		b.Take(ctx, reqs, out)
		if n := testing.AllocsPerRun(1000, func() { b.Take(ctx, reqs, out) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkBreaker(b *testing.B) {
	idle := New(nothingToDo{}, Config{}, time.Now)
	for _, c := range []struct {
		name string
		be   backends.Backend
	}{{"open", opened(b)}, {"closed", idle}, {"none", nothingToDo{}}} {
		for _, parallel := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/parallel=%v", c.name, parallel), func(b *testing.B) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				b.ReportAllocs()
				if !parallel {
					reqs, out := remote.Requests(1)
					for b.Loop() {
						c.be.Take(ctx, reqs, out)
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					reqs, out := remote.Requests(1)
					for pb.Next() {
						c.be.Take(ctx, reqs, out)
					}
				})
			})
		}
	}
}

// nothingToDo leaves what the decorator costs.
type nothingToDo struct{ backends.Backend }

func (nothingToDo) Take(_ context.Context, _ []limit.Request, out []limit.Verdict) {
	for i := range out {
		out[i].Reset(1)
	}
}
