package leases

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A releaser retries lease releases in the background until the lease would have
// expired. It gets releases that no caller waits for: those of answers that no
// client received, and those that the backend failed at first.
type releaser struct {
	store  *store
	done   func(*release, *limit.Verdict) // is called after a release
	giveUp func(*release)                 // is called when a release is given up

	mu      sync.Mutex
	queue   []release
	running bool
	closed  bool
	ended   chan struct{} // closed when the goroutine has ended, nil without one
	ctx     context.Context
	cancel  context.CancelFunc
}

// A release is an op that ends or renews a lease, which it must do before the
// lease expires.
type release struct {
	ops          []limit.Op // one, but for a settlement
	settlement   *Settlement
	domain, rule string
	expires      time.Time
}

const (
	maxReleases = 1 << 16 // more drop the oldest
	minPause    = 50 * time.Millisecond
	maxPause    = time.Second
)

func newReleaser(s *store, done func(*release, *limit.Verdict), giveUp func(*release)) *releaser {
	ctx, cancel := context.WithCancel(context.Background())
	return &releaser{store: s, done: done, giveUp: giveUp, ctx: ctx, cancel: cancel}
}

// push queues an op. domain and rule are labels of metrics.
func (r *releaser) push(op *limit.Op, domain, rule string) {
	r.add(release{ops: []limit.Op{*op}, domain: domain, rule: rule})
}

// add queues a release.
func (r *releaser) add(e release) {
	e.expires = time.Now().Add(e.ops[0].Limit.Window())
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= maxReleases {
		r.giveUp(&r.queue[0])
		r.queue = r.queue[1:]
	}
	if r.closed && !r.running {
		r.giveUp(&e)
		return
	}
	r.queue = append(r.queue, e)
	if !r.running {
		r.running, r.ended = true, make(chan struct{})
		ended := r.ended
		r.store.panics.Go("releaser", func() { r.run(ended) })
	}
}

// run works until the queue is empty.
func (r *releaser) run(ended chan struct{}) {
	defer close(ended)
	pause := minPause
	for {
		batch := r.next()
		if batch == nil {
			return
		}
		failed := batch
		_ = r.store.panics.Do("releaser", func() { failed = r.try(batch) }) // is reported, and the batch retried
		if len(failed) == 0 {
			pause = minPause
			continue
		}
		r.requeue(failed)
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-r.ctx.Done():
			r.drop()
		}
	}
}

// next removes a batch from the queue, nil if the queue is empty: then the
// goroutine ends.
func (r *releaser) next() []release {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var batch []release
	for len(r.queue) > 0 && len(batch) < batchSize {
		e := r.queue[0]
		r.queue = r.queue[1:]
		if e.expires.After(now) {
			batch = append(batch, e)
		} else {
			r.giveUp(&e)
		}
	}
	if batch == nil {
		r.running, r.queue = false, nil
	}
	return batch
}

// try asks the backend once and returns what to retry.
func (r *releaser) try(batch []release) (failed []release) {
	reqs := make([][]limit.Op, len(batch))
	for i := range batch {
		reqs[i] = batch[i].ops
	}
	out := r.store.takeEach(r.ctx, reqs)
	for i := range batch {
		e, v := &batch[i], &out[i]
		switch {
		case v.Err == nil:
			r.done(e, v)
		case errors.Is(v.Err, backends.ErrInvalid), errors.Is(v.Err, backends.ErrUnsupported):
			r.giveUp(e)
		case e.ops[0].Holder == "" && !errors.Is(v.Err, backends.ErrNotApplied):
			r.giveUp(e) // the backend may have done it, and a retry would end another request
		default:
			failed = append(failed, *e)
		}
	}
	return failed
}

func (r *releaser) requeue(failed []release) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(failed, r.queue...)
}

// drop gives up the queue.
func (r *releaser) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.queue {
		r.giveUp(&r.queue[i])
	}
	r.queue = nil
}

// close waits until the queue is empty or ctx ends, and then gives up the rest.
func (r *releaser) close(ctx context.Context) {
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
