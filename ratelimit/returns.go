package ratelimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// returns gives back leases that nobody waits for: those of answers that came
// too late, and those that the backend could not take back at first. It tries
// again until the lease would have expired anyway.
type returns struct {
	s *Service

	mu      sync.Mutex
	queue   []giveBack
	running bool
	closed  bool
	ended   chan struct{} // closed when the goroutine has ended, nil without one
	ctx     context.Context
	cancel  context.CancelFunc
}

// A giveBack is an op that must be done before it is pointless.
type giveBack struct {
	op           limit.Op
	domain, rule string
	expires      time.Time
}

const (
	maxReturns   = 1 << 16 // the oldest go first
	returnsSlice = 256     // ops in one call to the backend
	minPause     = 50 * time.Millisecond
	maxPause     = time.Second
)

func newReturns(s *Service) *returns {
	ctx, cancel := context.WithCancel(context.Background())
	return &returns{s: s, ctx: ctx, cancel: cancel}
}

// push has op done soon, or as soon as the backend can.
func (r *returns) push(op *limit.Op, domain, rule string) {
	g := giveBack{op: *op, domain: domain, rule: rule, expires: time.Now().Add(op.Limit.Window())}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= maxReturns {
		r.lost(&r.queue[0])
		r.queue = r.queue[1:]
	}
	if r.closed && !r.running {
		r.lost(&g)
		return
	}
	r.queue = append(r.queue, g)
	if !r.running {
		r.running, r.ended = true, make(chan struct{})
		ended := r.ended
		r.s.conf.Panics.Go("returns", func() { r.run(ended) })
	}
}

func (r *returns) lost(g *giveBack) { r.s.conf.Metrics.Lease(g.domain, g.rule)[LeaseLost].Inc() }

// run gives back until nothing is left.
func (r *returns) run(ended chan struct{}) {
	defer close(ended)
	pause := minPause
	for {
		batch := r.next()
		if batch == nil {
			return
		}
		failed := batch
		_ = r.s.conf.Panics.Do("returns", func() { failed = r.try(batch) }) // it is reported, and tried again
		if len(failed) == 0 {
			pause = minPause
			continue
		}
		r.again(failed)
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-r.ctx.Done():
			r.drop()
		}
	}
}

// next takes some of the queue, nil if it is empty: then the goroutine ends.
func (r *returns) next() []giveBack {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var batch []giveBack
	for len(r.queue) > 0 && len(batch) < returnsSlice {
		g := r.queue[0]
		r.queue = r.queue[1:]
		if g.expires.After(now) {
			batch = append(batch, g)
		} else {
			r.lost(&g)
		}
	}
	if batch == nil {
		r.running, r.queue = false, nil
	}
	return batch
}

// try does what it can of batch and returns what failed.
func (r *returns) try(batch []giveBack) (failed []giveBack) {
	s := r.s
	ops := make([]limit.Op, len(batch))
	for i := range batch {
		ops[i] = batch[i].op
	}
	out := s.takeOps(r.ctx, ops)
	for i := range batch {
		g, v := &batch[i], &out[i]
		switch {
		case v.Err == nil:
			s.leaseEnded(&g.op, &v.Outcomes[0], g.domain, g.rule, false, v.At)
		case errors.Is(v.Err, backends.ErrInvalid), errors.Is(v.Err, backends.ErrUnsupported):
			r.lost(g)
		case g.op.Holder == "" && !errors.Is(v.Err, backends.ErrNotApplied):
			r.lost(g) // it may be done, and once more would end another request's
		default:
			failed = append(failed, *g)
		}
	}
	return failed
}

func (r *returns) again(failed []giveBack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(failed, r.queue...)
}

// drop gives up what is left.
func (r *returns) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.queue {
		r.lost(&r.queue[i])
	}
	r.queue = nil
}

// close waits until everything is given back, or ctx ends.
func (r *returns) close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	ended := r.ended
	r.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
	r.cancel()
	if ended != nil {
		<-ended
	}
}
