package memory

import "sync/atomic"

// DefaultPool is the size of a pool, in bytes, where nothing asks for less.
const DefaultPool = 256 << 20

// A Pool is the memory that all holders together (connections, requests) keep for their clients.
//
// While they keep less than half of it, each gets what it asks for. Above that, each gets no more than a fair share of
// the other half, so that no client can use up what others need.
type Pool struct {
	limit int64 // bytes

	_       [64]byte // limit is read for each call, and holders write what follows
	used    atomic.Int64
	holders atomic.Int64
	short   chan struct{}
}

// reserve is what each holder is always granted, in bytes: a call of ordinary size.
const reserve = 8 << 10

// NewPool returns a pool of so many bytes.
func NewPool(limit int64) *Pool { return &Pool{limit: limit, short: make(chan struct{}, 1)} }

// Limit is how many bytes holders may keep together.
func (p *Pool) Limit() int64 { return p.limit }

// Used is how many bytes all holders keep.
func (p *Pool) Used() int64 { return p.used.Load() }

// Free is how many bytes holders may keep before each is held to its share.
func (p *Pool) Free() int64 { return p.limit / 2 }

// Short reports whether holders keep so much that each is held to its share.
func (p *Pool) Short() bool { return p.used.Load() > p.Free() }

// Shortage gets a signal when a holder asks for memory while the pool is short.
func (p *Pool) Shortage() <-chan struct{} { return p.short }

// FairShare is how many bytes each holder may keep while the pool is short.
func (p *Pool) FairShare() int64 {
	return max(reserve, (p.limit-p.Free())/max(p.holders.Load(), 1))
}

// Join and Leave count the holders.
func (p *Pool) Join() { p.holders.Add(1) }

// Leave is for a holder that has joined, after its last Set.
func (p *Pool) Leave() { p.holders.Add(-1) }

// An Account is what a pool knows of one holder. One goroutine at a time may use it, but for Counted.
type Account struct {
	Pool    *Pool
	counted atomic.Int64
}

// Counted is how many bytes the pool knows of.
func (a *Account) Counted() int64 { return a.counted.Load() }

// Set reports how many bytes the holder keeps.
func (a *Account) Set(total int) {
	if d := int64(total) - a.counted.Load(); d != 0 {
		a.Pool.used.Add(d)
		a.counted.Store(int64(total))
	}
}

// Grants reports whether the holder may keep that many bytes. It does not count them.
func (a *Account) Grants(total int) bool {
	if a.Pool.used.Load()+a.Unknown(total) <= a.Pool.Free() {
		return true
	}
	select {
	case a.Pool.short <- struct{}{}:
	default: // it is known already
	}
	return int64(total) <= a.Pool.FairShare()
}

// Spares reports whether the holder may keep that many bytes for something of low priority: while all holders keep less
// than half of what is free, and otherwise a few.
func (a *Account) Spares(total int) bool {
	return total <= reserve || a.Pool.used.Load()+a.Unknown(total) <= a.Pool.Free()/2
}

// Unknown is how many of that many bytes the pool does not know of.
func (a *Account) Unknown(total int) int64 { return int64(total) - a.counted.Load() }
