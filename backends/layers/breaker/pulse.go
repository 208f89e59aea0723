package breaker

import (
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends/internal/circuit"
)

// A pulse is what the last Takes say about how the store answers now.
type pulse struct {
	silent  atomic.Int64 // Unix ns since when the store has been asked and has answered nobody; or 0
	failing atomic.Bool  // the last Take that said something failed
	last    atomic.Int64 // Unix ns when the store last answered
	took    atomic.Int64 // ns that it took
}

// fresh is for how long the time that an answer took says what is normal.
const fresh = time.Second

func (p *pulse) asked(now time.Time) {
	if p.silent.Load() == 0 {
		p.silent.CompareAndSwap(0, now.UnixNano())
	}
}

func (p *pulse) ended(began, now time.Time, r circuit.Result) {
	switch r {
	case circuit.Succeeded:
		p.silent.Store(0)
		if p.failing.Load() {
			p.failing.Store(false)
		}
		p.last.Store(now.UnixNano())
		p.took.Store(int64(now.Sub(began)))
	case circuit.Failed:
		p.failing.Store(true)
	default: // as if it had not been asked
		p.silent.CompareAndSwap(began.UnixNano(), 0)
	}
}

// beats reports whether the store answers, and has not been silent for longer than
// patience.
func (p *pulse) beats(now time.Time, patience time.Duration) bool {
	since := p.silent.Load()
	return !p.failing.Load() && (since == 0 || now.UnixNano()-since < int64(patience))
}

// needed returns how long the store took for its last answer, 0 if that was
// long ago.
func (p *pulse) needed(now time.Time) time.Duration {
	if now.UnixNano()-p.last.Load() > int64(fresh) {
		return 0
	}
	return time.Duration(p.took.Load())
}
