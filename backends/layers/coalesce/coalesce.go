package coalesce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend gathers takes for another one.
type Backend struct {
	next   backends.Backend
	cfg    Config
	ctx    context.Context // of the slices; ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex
	idle    sync.Cond // inFlight is zero
	closed  bool
	flights int // slices under way, at most cfg.InFlight
	queue   queue
}

var _ backends.Backend = (*Backend)(nil)

var (
	errFull       = fmt.Errorf("%w: %w: too many requests wait for the store", backends.ErrUnavailable, backends.ErrNotApplied)
	errNoTurn     = fmt.Errorf("%w: %w: the deadline passed before the request was sent", backends.ErrUnavailable, backends.ErrNotApplied)
	errOverloaded = fmt.Errorf("%w: %w", backends.ErrOverloaded, errFull)
	errTooMany    = fmt.Errorf("%w: %w", backends.ErrOverloaded, errNoTurn)
	errClosed     = fmt.Errorf("%w: %w: closed", backends.ErrUnavailable, backends.ErrNotApplied)
)

// New returns a backend that gathers takes for next and closes it with itself.
func New(next backends.Backend, cfg Config) *Backend {
	cfg.setDefaults()
	b := &Backend{next: next, cfg: cfg}
	b.idle.L = &b.mu
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Take sends reqs on, alone or with those of other callers.
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if len(reqs) == 0 {
		return
	}
	if ctx.Err() != nil {
		backends.Fail(out, b.noTurn(ctx))
		return
	}
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		backends.Fail(out, errClosed)
	case b.flights < b.cfg.InFlight && b.queue.empty():
		b.flights++
		b.mu.Unlock()
		b.takeAlone(ctx, reqs, out)
	case !b.queue.empty() && b.queue.requests+len(reqs) > b.cfg.Queue:
		b.mu.Unlock()
		backends.Fail(out, b.full())
	default:
		b.mu.Unlock()
		b.takeTogether(ctx, reqs, out)
	}
}

// takeAlone sends reqs at once, in the caller's own time and memory.
func (b *Backend) takeAlone(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.cfg.Timeout)
		defer cancel()
	}
	defer b.land()
	b.next.Take(ctx, reqs, out)
}

// land ends the flight of a caller, who does not stay to serve others: if
// some wait, a goroutine takes the flight over.
func (b *Backend) land() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue.empty() {
		b.freeFlight()
	} else {
		b.cfg.Panics.Go("combine", b.work)
	}
}

// freeFlight is called with mu held.
func (b *Backend) freeFlight() {
	if b.flights--; b.flights == 0 {
		b.idle.Broadcast()
	}
}

// takeTogether queues a copy of reqs, which the store may still be reading
// when the caller has left, and waits for the verdicts.
func (b *Backend) takeTogether(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	c := newCall(ctx, reqs, out)
	if err := b.enqueue(c); err != nil {
		c.free()
		backends.Fail(out, err)
		return
	}
	select {
	case <-c.done:
		c.free()
	case <-ctx.Done():
		b.leave(ctx, c, out)
	}
}

// enqueue queues c. As the copy was made without the lock, all may have
// changed; a flight that has become free is used by a goroutine.
func (b *Backend) enqueue(c *call) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return errClosed
	case !b.queue.empty() && b.queue.requests+len(c.reqs) > b.cfg.Queue:
		return b.full()
	}
	b.queue.push(c)
	if b.flights < b.cfg.InFlight {
		b.flights++
		b.cfg.Panics.Go("combine", b.work)
	}
	return nil
}

// leave is for a caller whose context is over. What is still queued is not
// sent; what is sent goes on without the caller, whose memory stays alone.
func (b *Backend) leave(ctx context.Context, c *call, out []limit.Verdict) {
	b.mu.Lock()
	queued := c.queued
	if queued {
		b.queue.remove(c)
	}
	b.mu.Unlock()
	switch {
	case queued:
		c.free()
		backends.Fail(out, b.noTurn(ctx))
	case c.state.CompareAndSwap(waiting, left):
		backends.Fail(out, fmt.Errorf("%w: %w", backends.ErrUnavailable, ctx.Err()))
	default: // the verdicts are just being written
		<-c.done
		c.free()
	}
}

// full is why there is no room in the queue.
func (b *Backend) full() error {
	if b.cfg.Answers() {
		return errOverloaded
	}
	return errFull
}

// noTurn is why a request was not sent whose caller has stopped waiting.
func (b *Backend) noTurn(ctx context.Context) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%w: %w: %w", backends.ErrUnavailable, backends.ErrNotApplied, ctx.Err())
	case b.cfg.Answers():
		return errTooMany
	}
	return errNoTurn
}

// work sends what is queued, slice by slice, until nothing is. It owns one
// flight.
func (b *Backend) work() {
	s := slicePool.Get().(*slice)
	defer slicePool.Put(s)
	for b.gather(s) {
		b.send(s)
	}
}

// gather moves the head of the queue into s, or gives the flight back.
func (b *Backend) gather(s *slice) bool {
	s.clear()
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.queue.empty() {
		c := b.queue.first()
		if len(s.reqs) > 0 && len(s.reqs)+len(c.reqs) > b.cfg.MaxSlice {
			break
		}
		b.queue.remove(c)
		s.add(c)
	}
	if len(s.calls) == 0 {
		b.freeFlight()
		return false
	}
	return true
}

func (b *Backend) send(s *slice) {
	ctx, cancel := b.deadline(s)
	defer cancel()
	for len(s.out) < len(s.reqs) {
		s.out = append(s.out, limit.Verdict{})
	}
	if err := b.cfg.Panics.Do("combine", func() { b.next.Take(ctx, s.reqs, s.out[:len(s.reqs)]) }); err != nil {
		s.out = make([]limit.Verdict, len(s.reqs)) // who knows who has the other
		backends.Fail(s.out, fmt.Errorf("%w: %w", backends.ErrUnavailable, err))
	}
	from := 0
	for _, c := range s.calls {
		to := from + len(c.reqs)
		c.answer(s.out[from:to])
		from = to
	}
}

// deadline returns a context with the latest deadline of s's callers.
func (b *Backend) deadline(s *slice) (context.Context, context.CancelFunc) {
	var latest time.Time
	bounded := true
	for _, c := range s.calls {
		d, ok := c.ctx.Deadline()
		if bounded = bounded && ok; d.After(latest) {
			latest = d
		}
	}
	if !bounded {
		ctx, cancel := context.WithTimeout(b.ctx, b.cfg.Timeout)
		if d, _ := ctx.Deadline(); !latest.After(d) {
			return ctx, cancel
		}
		cancel()
	}
	return context.WithDeadline(b.ctx, latest)
}

// Forget passes keys on.
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	return b.next.Forget(ctx, keys)
}

// Ping asks the store.
func (b *Backend) Ping(ctx context.Context) error { return b.next.Ping(ctx) }

// Close fails those who wait, ends the slices under way, and closes the store
// when the last of them is back.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	for !b.queue.empty() {
		c := b.queue.first()
		b.queue.remove(c)
		c.fail(errClosed)
	}
	b.cancel()
	for b.flights > 0 {
		b.idle.Wait()
	}
	b.mu.Unlock()
	if err := b.next.Close(); err != nil {
		return fmt.Errorf("combine: %w", err)
	}
	return nil
}
