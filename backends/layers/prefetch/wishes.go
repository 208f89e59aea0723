package prefetch

import "sync"

const maxTrip = 128 // wishes in one trip

// wishes are holdings that should take or give back units.
type wishes struct {
	mu   sync.Mutex
	list []*holding // each once, so that MaxKeys bounds it
	wake chan struct{}
}

func (w *wishes) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next returns some wishes, and forgets them.
func (w *wishes) next() []*holding {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.list), maxTrip)
	some := w.list[:n:n]
	if w.list = w.list[n:]; len(w.list) == 0 {
		w.list = nil
	}
	return some
}
