package attack

import (
	"sync"
	"time"
)

// A countedWatch looks, repeatedly, at how many bytes headgate counts as memory of
// connections.
type countedWatch struct {
	quit chan struct{}
	done sync.WaitGroup
	most float64
}

// countedEvery is how often it looks: a page of metrics costs headgate a millisecond.
const countedEvery = 100 * time.Millisecond

func watchCounted(g *target) *countedWatch {
	w := &countedWatch{quit: make(chan struct{})}
	w.done.Go(func() {
		for {
			v, err := g.hg.Metrics("headgate_buffered_bytes")
			if err == nil { // else headgate is busy, or has ended, which measure reports
				w.most = max(w.most, v[0])
			}
			select {
			case <-w.quit:
				return
			case <-time.After(countedEvery):
			}
		}
	})
	return w
}

// stop returns the most that was counted, in MiB.
func (w *countedWatch) stop() int {
	close(w.quit)
	w.done.Wait()
	return int(w.most) >> 20
}
