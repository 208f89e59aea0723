package unary

import "sync/atomic"

// The server counts the memory that a connection keeps for its client: open streams,
// requests, answers that wait, and buffers.
//
// While all connections together keep less than half of Config.MaxBuffered, each gets
// what it asks for. Above that, each gets no more than a fair share of the other half,
// so that no client can use up what others need. The largest connections then lose
// their incomplete requests; those that do not read their answers are closed.

const (
	// streamCost is what an open stream counts, in bytes: itself and the buffers
	// for a request and an answer of ordinary size.
	streamCost = 2*maxKeptBuffer + 1<<10
	// reserve is what each connection is always granted, in bytes.
	reserve = 32 << 10
	// countAfter is how many bytes a connection may keep that the pool does not
	// know of.
	countAfter = 64 << 10
)

// A memoryPool is the memory of all connections together.
type memoryPool struct {
	limit int64 // bytes, of which each connection may take what it needs of the first half

	_    [64]byte     // limit is read for each call, and steps write what follows
	used atomic.Int64 // bytes, of all that connections keep

	requests    atomic.Int64  // bytes of requests, of which the first 2 KiB of each do not count
	connections atomic.Int64  // that are open
	exhausted   chan struct{} // signals that the pool is short
}

func newMemoryPool(limit int) *memoryPool {
	return &memoryPool{limit: int64(limit), exhausted: make(chan struct{}, 1)}
}

// free is how many bytes connections may keep before each is held to its share.
func (p *memoryPool) free() int64 { return p.limit / 2 }

// short reports whether connections keep so much that each is held to its share.
func (p *memoryPool) short() bool { return p.used.Load() > p.free() }

// fairShare is how many bytes each connection may keep while the pool is short.
func (p *memoryPool) fairShare() int64 {
	return max(reserve, (p.limit-p.free())/max(p.connections.Load(), 1))
}

// A memoryAccount is what the pool knows of one connection. Its connection's mutex
// guards it, but for counted.
type memoryAccount struct {
	pool     *memoryPool
	counted  atomic.Int64
	requests int
}

// set reports to the pool how many bytes the connection keeps, and how many of them are
// requests.
func (a *memoryAccount) set(total, requests int) {
	if d := int64(total) - a.counted.Load(); d != 0 {
		a.pool.used.Add(d)
		a.counted.Store(int64(total))
	}
	if d := requests - a.requests; d != 0 {
		a.pool.requests.Add(int64(d))
		a.requests = requests
	}
}

// grants reports whether the connection may keep that many bytes.
func (a *memoryAccount) grants(total int) bool {
	if a.pool.used.Load()+a.unknown(total) <= a.pool.free() {
		return true
	}
	select {
	case a.pool.exhausted <- struct{}{}:
	default: // it is known already
	}
	return int64(total) <= a.pool.fairShare()
}

// unknown is how many of that many bytes the pool does not know of.
func (a *memoryAccount) unknown(total int) int64 { return int64(total) - a.counted.Load() }
