package coalesce

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/limit"
)

// A call is one caller's Take while it is queued or under way. It belongs to
// the caller until it is queued, and again when done has been received; to the
// worker if the caller has left.
type call struct {
	ctx  context.Context
	reqs []limit.Request // copies; ops has the memory of their ops
	ops  []limit.Op
	out  []limit.Verdict // the caller's, written only by the goroutine that sets answered
	done chan struct{}   // holds one

	state      atomic.Int32
	queued     bool // guarded by Backend.mu, like the links
	prev, next *call
}

// The states of a call.
const (
	waiting  = iota // for an answer
	answered        // or about to be: out is being written
	left            // the caller is gone
)

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

func newCall(ctx context.Context, reqs []limit.Request, out []limit.Verdict) *call {
	c := calls.Get().(*call)
	c.ctx, c.out = ctx, out
	c.state.Store(waiting)
	for i := range reqs {
		c.ops = append(c.ops, reqs[i].Ops...)
	}
	ops := c.ops
	for i := range reqs {
		n := len(reqs[i].Ops)
		c.reqs = append(c.reqs, limit.Request{At: reqs[i].At, Ops: ops[:n:n]})
		ops = ops[n:]
	}
	return c
}

// free gives c back to the pool without what it points to.
func (c *call) free() {
	clear(c.reqs)
	clear(c.ops)
	c.ctx, c.reqs, c.ops, c.out = nil, c.reqs[:0], c.ops[:0], nil
	calls.Put(c)
}

// answer copies the verdicts to the caller, if it is still there, whose
// memory is reused as Take promises.
func (c *call) answer(from []limit.Verdict) {
	if !c.state.CompareAndSwap(waiting, answered) {
		c.free()
		return
	}
	for i := range from {
		v, to := &from[i], &c.out[i]
		outcomes := append(to.Outcomes[:0], v.Outcomes...)
		*to = *v
		to.Outcomes = outcomes
	}
	c.done <- struct{}{}
}

// fail answers c with err.
func (c *call) fail(err error) {
	if !c.state.CompareAndSwap(waiting, answered) {
		c.free()
		return
	}
	for i := range c.out {
		c.out[i].Reset(0)
		c.out[i].Err = err
	}
	c.done <- struct{}{}
}

// A queue is a list of calls; one that leaves early is taken out of it, so
// that it holds only those who wait.
type queue struct {
	head, tail *call
	requests   int
}

func (q *queue) empty() bool  { return q.head == nil }
func (q *queue) first() *call { return q.head }

func (q *queue) push(c *call) {
	if c.prev = q.tail; q.tail != nil {
		q.tail.next = c
	} else {
		q.head = c
	}
	q.tail = c
	c.queued = true
	q.requests += len(c.reqs)
}

func (q *queue) remove(c *call) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		q.head = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		q.tail = c.prev
	}
	c.prev, c.next, c.queued = nil, nil, false
	q.requests -= len(c.reqs)
}

// A slice is what goes to the store at once. Its memory is used again.
type slice struct {
	calls []*call
	reqs  []limit.Request
	out   []limit.Verdict
}

var slicePool = sync.Pool{New: func() any { return new(slice) }}

func (s *slice) clear() {
	clear(s.calls)
	clear(s.reqs)
	s.calls, s.reqs = s.calls[:0], s.reqs[:0]
}

func (s *slice) add(c *call) {
	s.calls = append(s.calls, c)
	s.reqs = append(s.reqs, c.reqs...)
}
