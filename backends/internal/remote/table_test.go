package remote

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
)

// TestTableKeepsTheContract: states that are written and read back for every
// slice are a store like any other.
func TestTableKeepsTheContract(t *testing.T) {
	table := NewTable(time.Now)
	backendtest.Run(t, backendtest.Suite{
		Caps: table.Caps(), Shared: true, Short: true,
		Open: func(testing.TB) backends.Backend { return table },
		Stored: func(testing.TB) int {
			table.Sweep()
			return table.Len()
		},
	})
}
