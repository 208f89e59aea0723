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
	ctx      context.Context
	reqs     []limit.Request // copies; ops has the memory of their ops
	ops      []limit.Op
	lane     *lane
	verdicts verdicts      // the caller's, written only by the goroutine that sets answered
	done     chan struct{} // holds one

	state      atomic.Int32
	queued     bool // guarded by lane.mu, like the links
	prev, next *call
}

// verdicts are places in the memory of a caller.
type verdicts struct {
	out []limit.Verdict
	at  []int32 // which of out; empty: all
}

func (v *verdicts) len() int {
	if len(v.at) > 0 {
		return len(v.at)
	}
	return len(v.out)
}

// of returns the verdict on request i of a call.
func (v *verdicts) of(i int) *limit.Verdict {
	if len(v.at) > 0 {
		i = int(v.at[i])
	}
	return &v.out[i]
}

// fail makes err the error of each verdict.
func (v *verdicts) fail(err error) {
	for i := range v.len() {
		v.of(i).Fail(err)
	}
}

// The states of a call.
const (
	waiting  = iota // for an answer
	answered        // or about to be: out is being written
	left            // the caller is gone
)

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

func newCall(ctx context.Context, out []limit.Verdict) *call {
	c := calls.Get().(*call)
	c.ctx, c.verdicts.out = ctx, out
	c.state.Store(waiting)
	return c
}

// copy makes those of reqs that belongs names, or all, those of c: out has the verdicts on reqs.
func (c *call) copy(reqs []limit.Request, belongs func(i int) bool) {
	for i := range reqs {
		if belongs != nil {
			if !belongs(i) {
				continue
			}
			c.verdicts.at = append(c.verdicts.at, int32(i))
		}
		c.ops = append(c.ops, reqs[i].Ops...)
		c.reqs = append(c.reqs, limit.Request{At: reqs[i].At, Ops: reqs[i].Ops})
	}
	ops := c.ops // all are there: appending moves them no more
	for i := range c.reqs {
		n := len(c.reqs[i].Ops)
		c.reqs[i].Ops, ops = ops[:n:n], ops[n:]
	}
}

// free gives c back to the pool without what it points to.
func (c *call) free() {
	clear(c.reqs)
	clear(c.ops)
	c.ctx, c.lane, c.reqs, c.ops, c.verdicts = nil, nil, c.reqs[:0], c.ops[:0], verdicts{at: c.verdicts.at[:0]}
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
		v, to := &from[i], c.verdicts.of(i)
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
	c.verdicts.fail(err)
	c.done <- struct{}{}
}

// A queue is a list of calls; one that leaves early is taken out of it, so
// that it holds only those who wait.
type queue struct {
	head, tail *call
	requests   int
}

func (q *queue) empty() bool { return q.head == nil }

func (q *queue) push(c *call) {
	c.prev = q.tail
	if q.tail != nil {
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
