package fallback

import (
	"sync"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// shares has this replica's share of each limit.
type shares struct {
	replicas int64
	max      int
	mu       sync.RWMutex
	of       map[*limit.Limit]*limit.Limit
}

func (s *shares) get(whole *limit.Limit) *limit.Limit {
	if s.replicas <= 1 || whole == nil {
		return whole
	}
	s.mu.RLock()
	l := s.of[whole]
	s.mu.RUnlock()
	if l != nil {
		return l
	}
	l = share(whole, s.replicas)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of) >= s.max {
		clear(s.of) // of rules that are gone, most likely
	}
	s.of[whole] = l
	return l
}

// share returns the n-th part of a limit, rounded down but not below a unit, as is
// what it lets its callers owe.
func share(whole *limit.Limit, n int64) *limit.Limit {
	l := strictShare(whole.Strict(), n)
	if whole.Overflow() == limit.Refuse {
		return l
	}
	for _, most := range []int64{part(whole.MaxDebt(), n), 0} { // 0 is one limit, which is always paid back in time
		if other, err := l.WithOverflow(whole.Overflow(), most); err == nil {
			return other
		}
	}
	return l
}

// strictShare is share for a limit that refuses. A token bucket's rate is divided
// exactly where its window can grow for it.
func strictShare(whole *limit.Limit, n int64) *limit.Limit {
	spec := whole.Spec()
	if spec.Algorithm.Is(limit.Refilled) {
		spec.Burst = part(spec.Burst, n)
		if int64(spec.Window) <= int64(limit.MaxWindow)/n {
			slow := spec
			slow.Window *= time.Duration(n)
			if l, err := limit.New(slow); err == nil {
				return l
			}
		}
	}
	spec.Max = part(spec.Max, n)
	for {
		l, err := limit.New(spec)
		if err == nil {
			return l
		}
		// Only a bucket that takes too long to refill; one of a unit never does.
		spec.Burst = part(spec.Burst, 2)
	}
}

func part(units, n int64) int64 {
	if units == 0 {
		return 0
	}
	return max(units/n, 1)
}

// work is the memory for requests with other limits.
type work struct {
	reqs []limit.Request
	ops  []limit.Op
}

var works = sync.Pool{New: func() any { return new(work) }}

// derive returns a copy of reqs with this replica's share of their limits.
func (w *work) derive(s *shares, reqs []limit.Request) []limit.Request {
	for i := range reqs {
		for _, op := range reqs[i].Ops {
			op.Limit = s.get(op.Limit)
			w.ops = append(w.ops, op)
		}
	}
	ops := w.ops
	for i := range reqs {
		n := len(reqs[i].Ops)
		w.reqs = append(w.reqs, limit.Request{At: reqs[i].At, Ops: ops[:n:n]})
		ops = ops[n:]
	}
	return w.reqs
}

// free gives w back without what it points to.
func (w *work) free() {
	clear(w.reqs)
	clear(w.ops)
	w.reqs, w.ops = w.reqs[:0], w.ops[:0]
	works.Put(w)
}
