package prefetch

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/backends/memory"
)

// Where nothing is shared, every answer is the store's own.
func TestConformance(t *testing.T) {
	caps := memory.Caps()
	backendtest.Run(t, backendtest.Suite{Caps: caps, Short: true, Open: func(testing.TB) backends.Backend {
		return New(memory.New(memory.Config{}), &caps, Config{}, time.Now)
	}})
}
