package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// Refunds give back what parts of a request took that another part refused, or
// that failed elsewhere. Nobody waits for them, and they have memory of their
// own: the request is its caller's again.
//
// A refund must never admit what the limit does not allow, so it says as of when
// it is: units of a window are worth nothing when the window is over, those of a
// bucket are worth less for as long as the bucket could have been full, and of a
// log it is the records of that very instant that go. What comes too late, or
// cannot be sent, is lost to the callers.

// Bounds of what waits to be given back.
const (
	maxRefunds     = 4096
	maxRefundBytes = 4 << 20
	refundSlice    = 64  // in one trip
	refundWorkers  = 4   // a node that hangs keeps one of them
	refundTries    = 20  // with the pauses between them, about three seconds
	opSize         = 256 // of an op and what belongs to it, without its strings

	minRefundPause, maxRefundPause = 5 * time.Millisecond, 200 * time.Millisecond
)

// A refund is what one part took.
type refund struct {
	slot  int
	at    limit.Instant // of its request, as the script gets it
	ops   []limit.Op    // as they were taken
	asOf  []limit.Instant
	size  int
	tries int
}

// refunds are those that wait, and who sends them.
type refunds struct {
	servers *servers
	packer  *packer

	mu      sync.Mutex
	queue   []refund
	pending int // of the queue and under way
	size    int // of the same, in bytes
	workers int
	ended   chan struct{} // set by close; closed when the last worker has ended

	// done are given back, late those of which nothing or not all was worth anything any more, and lost those that
	// could not be.
	done, late, lost atomic.Int64
}

// add adds an op, which it copies.
func (r *refund) add(op *limit.Op, asOf limit.Instant) {
	r.ops = append(r.ops, limit.Op{
		Key:   limit.Key{Group: strings.Clone(op.Key.Group), Limit: strings.Clone(op.Key.Limit)},
		Limit: op.Limit, Cost: op.Cost, Holder: strings.Clone(op.Holder),
	})
	r.asOf = append(r.asOf, asOf)
	r.size += opSize + len(op.Key.Group) + len(op.Key.Limit) + len(op.Holder)
}

// asOf returns what the script must know of op, taken at an instant, to give it
// back: the end of its window; for a bucket the instant at which it would have
// been full without op; for a log the instant of its records.
func asOf(op *limit.Op, out *limit.Outcome, now, charged limit.Instant) limit.Instant {
	switch {
	case op.Limit.Is(limit.Aligned):
		return op.Limit.WindowEnd(charged)
	case op.Limit.Is(limit.Refilled):
		full := now.Add(out.Reset-op.Limit.RefillTime(op.Cost)) - 1 // rounded down
		return max(charged, full)
	}
	return charged
}

// push has a list done soon. What there is no room for is lost.
func (r *refunds) push(list []refund) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list {
		if r.ended != nil || r.pending >= maxRefunds || r.size+list[i].size > maxRefundBytes {
			r.lost.Add(1)
			continue
		}
		r.queue = append(r.queue, list[i])
		r.pending, r.size = r.pending+1, r.size+list[i].size
	}
	if len(r.queue) > 0 && r.workers < refundWorkers {
		r.workers++
		r.servers.inBackground("refunds", r.work)
	}
}

// work sends what waits until nothing does.
func (r *refunds) work() {
	done := false
	defer func() {
		if !done { // a panic; the next push starts another
			r.mu.Lock()
			defer r.mu.Unlock()
			r.workers--
		}
	}()
	for pause := minRefundPause; ; {
		batch := r.next()
		if batch == nil {
			done = true
			return
		}
		if failed := r.try(batch); failed == 0 {
			pause = minRefundPause
			continue
		}
		_ = background.Sleep(r.servers.closing, pause)
		pause = min(2*pause, maxRefundPause)
	}
}

// next takes some of the queue, nil if it is empty: then the worker ends.
func (r *refunds) next() []refund {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := min(len(r.queue), refundSlice); n > 0 {
		batch := append([]refund(nil), r.queue[:n]...)
		clear(r.queue[:n])
		if r.queue = r.queue[n:]; len(r.queue) == 0 {
			r.queue = nil
		}
		return batch
	}
	if r.workers--; r.workers == 0 && r.ended != nil {
		close(r.ended)
	}
	return nil
}

// try sends a batch, queues the refunds that may be tried again, and returns
// their number. It repeats a failed refund only if that is known to have had no
// effect: to give back twice would admit too much.
func (r *refunds) try(batch []refund) (failed int) {
	results := r.send(batch)
	again := batch[:0]
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, f := range batch {
		switch err := results[i].err; {
		case err == nil && results[i].all:
			r.done.Add(1)
		case err == nil:
			r.late.Add(1)
		case errors.Is(err, backends.ErrNotApplied) && !errors.Is(err, backends.ErrCorrupt) && f.tries < refundTries &&
			r.servers.closing.Err() == nil:
			f.tries++
			again = append(again, f)
			continue
		default:
			r.lost.Add(1)
		}
		r.pending, r.size = r.pending-1, r.size-f.size
	}
	r.queue = append(r.queue, again...)
	return len(again)
}

// A refunded is what came of a refund.
type refunded struct {
	all bool // not only a part: nothing of it was late
	err error
}

// send sends a batch once. A panic is an error of all of it.
func (r *refunds) send(batch []refund) []refunded {
	results := make([]refunded, len(batch))
	if err := r.servers.cfg.Panics.Do("refunds", func() { r.sendOnce(batch, results) }); err != nil {
		for i := range results {
			results[i] = refunded{err: fmt.Errorf("%w: %w", backends.ErrUnavailable, err)}
		}
	}
	return results
}

func (r *refunds) sendOnce(batch []refund, results []refunded) {
	ctx, cancel := context.WithTimeout(r.servers.closing, r.servers.cfg.Timeout)
	defer cancel()
	s, where := &scratch{}, make([]*call, len(batch))
	for i := range batch {
		f := &batch[i]
		_, c := r.packer.callFor(s, f.slot, r.packer.refundWeight(f))
		where[i] = c
		c.refund(&r.packer.keys, f.at, f.ops, f.asOf)
	}
	r.servers.decide(ctx, r.packer, s, nil)
	for _, c := range s.calls[:s.used] {
		reply := c.read()
		for i := range batch {
			if where[i] == c {
				results[i].all, results[i].err = c.refunded(&reply)
			}
		}
	}
}

// logRefund is what giving back to a log weighs beside others: the records that
// have come since are written anew.
const logRefund = 16

// refundWeight says how much work f is: see packer.weight.
func (p *packer) refundWeight(f *refund) int {
	n := p.weight(&limit.Request{Ops: f.ops})
	for i := range f.ops {
		if f.ops[i].Limit.Is(limit.Logged) {
			n += logRefund
		}
	}
	return n
}

// close waits until everything is given back, but no longer than a while. What
// comes later is lost.
func (r *refunds) close(most time.Duration) {
	r.mu.Lock()
	ended := make(chan struct{})
	r.ended = ended
	if r.workers == 0 {
		close(ended)
	}
	r.mu.Unlock()
	select {
	case <-ended:
	case <-time.After(most):
	}
}

// waiting returns how many refunds wait or are under way, and their bytes.
func (r *refunds) waiting() (n, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending, r.size
}
