package denycache

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/backends/memory"
)

// Ages long enough for instants that leap by hours and for shorter ones.
var ages = map[string]time.Duration{"a second": 0, "ten years": 10 * 365 * 24 * time.Hour}

// counting adds the hits of a handle to a sum when it is closed, so that the
// tests can see that the suite met the cache.
type counting struct {
	*Backend
	hits *atomic.Uint64
}

func (c counting) Close() error {
	c.hits.Add(c.Stats().Hits)
	return c.Backend.Close()
}

// Around memory, with nothing but given instants: every answer is memory's own.
func TestConformanceMemory(t *testing.T) {
	for name, age := range ages {
		t.Run(name, func(t *testing.T) {
			var hits atomic.Uint64
			caps := memory.Caps()
			backendtest.Run(t, backendtest.Suite{Caps: caps, Rounds: 400, Open: func(testing.TB) backends.Backend {
				return counting{New(memory.New(memory.Config{}), &caps, Config{MaxAge: age}, time.Now), &hits}
			}})
			if t.Logf("%d answers from the cache", hits.Load()); hits.Load() < 1000 {
				t.Error("the suite hardly met the cache")
			}
		})
	}
}

// Around a store with a clock, shared by all handles. No handle gives back what
// another has seen refused, which would take effect within MaxAge only: the
// suite passes as it is.
func TestConformanceRemote(t *testing.T) {
	for _, precision := range []time.Duration{time.Microsecond, time.Millisecond} {
		t.Run(precision.String(), func(t *testing.T) {
			var hits atomic.Uint64
			s := newStore(time.Now)
			s.Precision = precision
			backendtest.Run(t, backendtest.Suite{Caps: *s.Caps(), Shared: true, Rounds: 60, Open: func(testing.TB) backends.Backend {
				return counting{New(s, s.Caps(), Config{MaxAge: time.Hour}, time.Now), &hits}
			}})
			if t.Logf("%d answers from the cache", hits.Load()); hits.Load() < 200 {
				t.Error("the suite hardly met the cache")
			}
		})
	}
}

// BenchmarkConformance is the suite's benchmark: most takes are refused, keys
// are refilled at their own time.
func BenchmarkConformance(b *testing.B) {
	caps := memory.Caps()
	backendtest.Benchmark(b, caps, func(testing.TB) backends.Backend {
		return New(memory.New(memory.Config{}), &caps, Config{}, time.Now)
	})
}
