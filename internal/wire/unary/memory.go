package unary

import (
	"sync/atomic"

	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// The server counts the memory that a connection keeps for its client: open streams,
// requests, answers that wait, and buffers. Each connection is a holder of the pool.
// While the pool is short, the largest connections lose their incomplete requests; those
// that do not read their answers are closed.

const (
	// streamCost is what an open stream counts, in bytes: itself and the buffers
	// for a request and an answer of ordinary size.
	streamCost = 2*maxKeptBuffer + 1<<10
	// countAfter is how many bytes a connection may keep that the pool does not
	// know of.
	countAfter = 64 << 10
)

// A memoryAccount is what the pool knows of one connection. Its connection's mutex
// guards it, but for Counted.
type memoryAccount struct {
	memory.Account
	server   *atomic.Int64 // bytes of requests, of all connections
	requests int
}

// set reports to the pool how many bytes the connection keeps, and how many of them are
// requests.
func (a *memoryAccount) set(total, requests int) {
	a.Set(total)
	if d := requests - a.requests; d != 0 {
		a.server.Add(int64(d))
		a.requests = requests
	}
}
