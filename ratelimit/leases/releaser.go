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
	queue   []release // not tried yet
	failed  []release // are retried while the queue is empty: what fails for long holds up nothing new
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
	if len(r.queue)+len(r.failed) >= maxReleases {
		oldest := &r.queue
		if len(r.failed) > 0 {
			oldest = &r.failed
		}
		r.giveUp(&(*oldest)[0])
		*oldest = (*oldest)[1:]
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

// run works until nothing is left.
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
		r.requeue(failed)
		if len(failed) < len(batch) {
			pause = minPause
			continue
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-r.ctx.Done():
			r.drop()
		}
	}
}

// next removes a batch, nil if nothing is left: then the goroutine ends.
func (r *releaser) next() (batch []release) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for len(batch) == 0 && len(r.queue)+len(r.failed) > 0 {
		list := &r.failed
		if len(r.queue) > 0 {
			list = &r.queue
		}
		for len(*list) > 0 && len(batch) < batchSize {
			e := (*list)[0]
			*list = (*list)[1:]
			if e.expires.After(now) {
				batch = append(batch, e)
			} else {
				r.giveUp(&e)
			}
		}
	}
	if batch == nil {
		r.running, r.queue, r.failed = false, nil, nil
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
		case errors.Is(v.Err, backends.ErrInvalid), errors.Is(v.Err, backends.ErrUnsupported),
			errors.Is(v.Err, backends.ErrCorrupt):
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
	r.failed = append(r.failed, failed...)
}

// drop gives up what is left.
func (r *releaser) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range [][]release{r.failed, r.queue} {
		for i := range list {
			r.giveUp(&list[i])
		}
	}
	r.queue, r.failed = nil, nil
}

// close waits until nothing is left or ctx ends, and then gives up the rest.
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
