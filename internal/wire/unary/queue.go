package unary

import (
	byload "container/heap"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// maxServed is how many calls Serve gets at once: enough to keep a store
// busy, and few enough that the call of a quiet connection does not wait long
// behind those of a noisy one.
const maxServed = 768

// sweepEvery is how often the queue is searched for calls that wait too long.
const sweepEvery = 2 * time.Millisecond

// A queue is the jobs that wait for a worker. Connections take turns. When more
// calls wait than may, the connection with the most of them loses its latest.
type queue struct {
	most int // calls that may wait

	mu     sync.Mutex
	wake   sync.Cond // a worker has something to do
	calls  int       // that wait
	served int       // that are with workers
	idle   int       // workers that wait and are not woken yet
	closed bool
	next   *line       // whose turn it is, in a ring
	lines  linesByLoad // of all connections that wait
	timer  *time.Timer // of the next sweep
	armed  bool
}

func (q *queue) init(most int, panics *background.Reporter, sweep func()) {
	q.most = most
	q.wake.L = &q.mu
	q.timer = panics.AfterFunc("sweep", time.Hour, sweep)
	q.timer.Stop()
}

// push queues j and returns the jobs for which there is no room, perhaps j.
func (q *queue) push(j *job) (out []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(j)
	for q.calls > q.most {
		out = append(out, q.cut(q.lines[0].tail, q.calls-q.most))
	}
	q.signal()
	if !q.armed && (q.idle == 0 || q.served+q.calls > maxServed) {
		q.arm()
	}
	return out
}

// cut takes out the latest n calls of a job, or all of it.
func (q *queue) cut(j *job, n int) *job {
	if n >= len(j.streams) {
		q.remove(j)
		return j
	}
	rest := len(j.streams) - n
	out := newJob(j.owner, j.line, j.h)
	out.streams = append(out.streams, j.streams[rest:]...)
	clear(j.streams[rest:])
	j.streams = j.streams[:rest]
	q.count(j.line, -n)
	return out
}

func (q *queue) signal() {
	if q.idle > 0 && q.next != nil {
		q.idle--
		q.wake.Signal()
	}
}

func (q *queue) arm() {
	q.armed = true
	q.timer.Reset(sweepEvery)
}

// pop waits for a job, and returns nil when the queue is closed and empty. done
// is how many calls the worker has just served.
func (q *queue) pop(done int) *job {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.served -= done
	if done > 0 {
		q.signal() // there is room for one that may be served beside
	}
	for {
		if j := q.take(); j != nil {
			return j
		}
		if q.closed && q.next == nil {
			return nil
		}
		q.idle++
		q.wake.Wait()
	}
}

// take takes the job whose turn it is, if it may be served now.
func (q *queue) take() *job {
	if q.next == nil {
		return nil
	}
	j := q.next.head
	if n := len(j.streams); q.served > 0 && q.served+n > maxServed && !q.closed {
		return nil
	}
	q.next = q.next.next // the connection's own if it is alone
	q.remove(j)
	q.served += len(j.streams)
	return j
}

// late takes out the jobs that have waited for most of the time there is, and
// sees to the next sweep.
func (q *queue) late(now time.Time) (out []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = false
	for i := len(q.lines) - 1; i >= 0; i-- {
		for j := q.lines[i].head; j != nil; j = j.next {
			if !j.due.IsZero() && !now.Before(j.due) {
				out = append(out, j)
			}
		}
	}
	for _, j := range out {
		q.remove(j)
	}
	if q.calls > 0 && !q.closed {
		q.arm()
	}
	return out
}

// close ends the workers when no job waits any more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.timer.Stop()
	q.wake.Broadcast()
}

func (q *queue) add(j *job) {
	l := j.line
	if l.head == nil {
		q.join(l)
		l.head = j
	} else {
		l.tail.next, j.prev = j, l.tail
	}
	l.tail = j
	q.count(l, len(j.streams))
}

func (q *queue) remove(j *job) {
	l := j.line
	if j.prev != nil {
		j.prev.next = j.next
	} else {
		l.head = j.next
	}
	if j.next != nil {
		j.next.prev = j.prev
	} else {
		l.tail = j.prev
	}
	j.prev, j.next = nil, nil
	q.count(l, -len(j.streams))
	if l.head == nil {
		q.part(l)
	}
}

func (q *queue) count(l *line, calls int) {
	l.calls += calls
	q.calls += calls
	byload.Fix(&q.lines, l.rank)
}

// join puts a connection into the ring, behind all others.
func (q *queue) join(l *line) {
	byload.Push(&q.lines, l)
	if q.next == nil {
		l.prev, l.next, q.next = l, l, l
		return
	}
	l.prev, l.next = q.next.prev, q.next
	l.prev.next, l.next.prev = l, l
}

// part takes a connection that does not wait any more out of the ring.
func (q *queue) part(l *line) {
	byload.Remove(&q.lines, l.rank)
	l.prev.next, l.next.prev = l.next, l.prev
	if q.next == l {
		q.next = l.next
	}
	if q.next == l {
		q.next = nil
	}
	l.prev, l.next = nil, nil
}

// linesByLoad is a heap; the first has the most calls.
type linesByLoad []*line

func (h linesByLoad) Len() int           { return len(h) }
func (h linesByLoad) Less(i, j int) bool { return h[i].calls > h[j].calls }
func (h linesByLoad) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].rank, h[j].rank = i, j
}

func (h *linesByLoad) Push(x any) {
	l := x.(*line)
	l.rank = len(*h)
	*h = append(*h, l)
}

func (h *linesByLoad) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return l
}
