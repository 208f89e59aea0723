package unary

import (
	"sort"
	"time"
)

// All waiting for clients is bounded by one goroutine that checks every connection
// now and then, rather than by timers: a call starts none.

// relieveEvery is how often memory is taken back at most.
const relieveEvery = 10 * time.Millisecond

// A watcher checks the connections of a server.
type watcher struct {
	*shared
	conns func() []*conn
}

// watch checks connections until the server is closed.
func (w *watcher) watch() {
	for w.conf.Panics.Do("watch", w.checkAll) != nil {
		continue // without it nothing would be bounded
	}
}

// checkAll checks all connections now and then, until the server is closed.
func (w *watcher) checkAll() {
	ticker := time.NewTicker(w.conf.checkInterval())
	defer ticker.Stop()
	var relieved, logged time.Time
	for {
		select {
		case <-w.ctx.Done():
			w.events.flush(w.ctx, w.conf.Log)
			return
		case <-w.pool.Shortage():
			if now := time.Now(); now.Sub(relieved) >= relieveEvery { // else the ticker sees to it
				relieved = now
				w.relieve(w.conns())
			}
		case now := <-ticker.C:
			conns := w.conns()
			for _, c := range conns {
				c.check(now)
			}
			if w.pool.Short() {
				w.relieve(conns)
			}
			if now.Sub(logged) >= logEventsEvery {
				logged = now
				w.events.flush(w.ctx, w.conf.Log)
			}
		}
	}
}

// relieve takes memory back from the connections that keep most of it, until
// there is some room again.
func (w *watcher) relieve(conns []*conn) {
	kept := func(c *conn) int64 { return c.streams.account.Counted() }
	sort.Slice(conns, func(i, j int) bool { return kept(conns[i]) > kept(conns[j]) })
	goal := w.pool.Free() / 8 * 7
	for _, c := range conns {
		if w.pool.Used() <= goal || kept(c) <= w.pool.FairShare()/2 {
			return
		}
		c.relieve()
	}
}
