package denycache

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/backends/memory"
)

// BenchmarkConformance is the suite's benchmark: most takes are refused, keys
// are refilled at their own time.
func BenchmarkConformance(b *testing.B) {
	caps := memory.Caps()
	backendtest.Benchmark(b, caps, func(testing.TB) backends.Backend {
		return New(memory.New(memory.Config{}), &caps, time.Now)
	})
}
