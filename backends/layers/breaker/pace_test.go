package breaker

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/internal/remote"
)

// slowly answers after d, unless the deadline comes first.
func slowly(d time.Duration) remote.Way { return remote.Within(d) }

// paces are what a breaker says of the pace of its store.
type paces struct {
	mu  sync.Mutex
	log []string
}

func (p *paces) on(pace Pace, slow bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, fmt.Sprint(slow, " ", pace))
}

// seconds has ten calls a second arrive, each waiting for 20 ms, and sweeps each second.
func (sc *scene) seconds(n int) {
	var calls sync.WaitGroup
	for range n {
		for range 10 {
			calls.Go(func() { _ = sc.take(20 * ms) })
			time.Sleep(100 * ms)
		}
		sc.b.Sweep(0)
	}
	calls.Wait()
}

func TestSlowStoreIsSeenOnce(t *testing.T) {
	var seen paces
	play(t, Config{OnPace: seen.on}, func(sc *scene) {
		sc.seconds(30)
		if sc.b.Slow() != "" {
			t.Errorf("a store that answers at once: %s", sc.b.Slow())
		}
		sc.s.Behave(slowly(3 * ms))
		sc.seconds(10)
		if want := "p99 3.07ms, callers wait 20ms"; sc.b.Usual() != want || sc.b.Slow() != "" {
			t.Errorf("usual: %q, want %q", sc.b.Usual(), want)
		}
		sc.s.Behave(slowly(310 * ms))
		sc.seconds(60)
		if want := "answers in 310ms, callers wait 20ms, 100 % answered by policy"; sc.b.Slow() != want {
			t.Errorf("slow: %q, want %q", sc.b.Slow(), want)
		}
		sc.s.Behave(nil)
		sc.seconds(30)
		if sc.b.Slow() != "" {
			t.Errorf("a store that has recovered: %s", sc.b.Slow())
		}
	})
	if len(seen.log) != 2 || seen.log[0][:4] != "true" || seen.log[1][:5] != "false" {
		t.Errorf("%q", seen.log)
	}
}

// A store that does not answer is away, and not slow, also one that was slow before.
func TestStoreThatIsAwayIsNotSlow(t *testing.T) {
	var seen paces
	play(t, Config{OnPace: seen.on}, func(sc *scene) {
		for _, way := range []remote.Way{remote.Down, remote.Mute} {
			sc.s.Behave(way)
			sc.seconds(30)
			if sc.b.Slow() != "" || len(seen.log) > 0 {
				t.Errorf("slow: %s %q", sc.b.Slow(), seen.log)
			}
			sc.s.Behave(nil)
			sc.seconds(20)
		}
		sc.s.Behave(slowly(310 * ms))
		sc.seconds(20)
		sc.s.Behave(remote.Mute)
		sc.seconds(20)
		if sc.b.Slow() != "" || len(seen.log) != 2 {
			t.Errorf("slow, then away: %q %q", sc.b.Slow(), seen.log)
		}
	})
}

// Single late calls, such as those of a failover, make no slow store.
func TestFewLateCallsAreNoSlowStore(t *testing.T) {
	var seen paces
	play(t, Config{OnPace: seen.on}, func(sc *scene) {
		for range 10 {
			sc.s.Behave(slowly(310 * ms))
			_, _, _ = sc.take(20*ms), sc.take(20*ms), sc.take(20*ms)
			sc.s.Behave(nil)
			sc.seconds(9)
		}
	})
	if len(seen.log) > 0 {
		t.Errorf("%q", seen.log)
	}
}

// TestP99 is at most a quarter more than it is, and of all calls since it was asked for.
func TestP99(t *testing.T) {
	for _, d := range []time.Duration{0, 3, 4, 7, 8, 100, 999, 20_000, 500_000, 3_000_000, 1 << 40} {
		d *= time.Microsecond
		var s spread
		for range 99 {
			s.add(d)
		}
		s.add(time.Hour)
		got := s.take()
		if least, most := min(d, time.Hour), max(d+d/4, 5*time.Microsecond); got < least || got > most && d < time.Hour {
			t.Errorf("%v: %v", d, got)
		}
		if again := s.take(); again != 0 {
			t.Errorf("%v stays", again)
		}
	}
}
