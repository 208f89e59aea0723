package prefetch

import "sync"

const maxTrip = 128 // holdings in one trip

// A queue has the holdings that are to take more units or to return some.
type queue struct {
	mu   sync.Mutex
	list []*holding // each once, so that MaxKeys bounds it
	wake chan struct{}
}

// add adds h, whose shard the caller has locked.
func (q *queue) add(h *holding) {
	h.queued = true
	q.mu.Lock()
	q.list = append(q.list, h)
	q.mu.Unlock()
	q.signal()
}

// signal wakes Run.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next removes and returns the first holdings, at most maxTrip.
func (q *queue) next() []*holding {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.list), maxTrip)
	first := q.list[:n:n]
	if q.list = q.list[n:]; len(q.list) == 0 {
		q.list = nil
	}
	return first
}
