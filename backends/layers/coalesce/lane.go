package coalesce

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A lane gathers takes that wait for the same servers.
type lane struct {
	*shared

	mu      sync.Mutex
	idle    sync.Cond // no flight is under way
	closed  bool
	flights int // slices under way, at most cfg.InFlight
	queue   queue
	linger  linger
}

// shared is what all lanes use.
type shared struct {
	next   backends.Backend
	cfg    Config
	ctx    context.Context // of the slices; ends with Close
	cancel context.CancelFunc
}

var (
	errFull = fmt.Errorf("%w: %w: too many requests wait for the store", backends.ErrUnavailable,
		backends.ErrNotApplied)
	errNoTurn = fmt.Errorf("%w: %w: the deadline passed before the request was sent", backends.ErrUnavailable,
		backends.ErrNotApplied)
	errOverloaded = fmt.Errorf("%w: %w", backends.ErrOverloaded, errFull)
	errTooMany    = fmt.Errorf("%w: %w", backends.ErrOverloaded, errNoTurn)
	errClosed     = fmt.Errorf("%w: %w: closed", backends.ErrUnavailable, backends.ErrNotApplied)
)

// take sends reqs on, alone or with those of other callers.
func (l *lane) take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		backends.Fail(out, errClosed)
	case l.flights < l.cfg.InFlight && l.queue.empty():
		l.flights++
		l.mu.Unlock()
		l.takeAlone(ctx, reqs, out)
	case !l.queue.empty() && l.queue.requests+len(reqs) > l.cfg.Queue:
		l.mu.Unlock()
		backends.Fail(out, l.full())
	default:
		l.mu.Unlock()
		l.takeTogether(ctx, reqs, out)
	}
}

// takeAlone sends reqs at once, in the caller's own time and memory.
func (l *lane) takeAlone(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.cfg.Timeout)
		defer cancel()
	}
	defer l.land()
	l.next.Take(ctx, reqs, out)
}

// land ends the flight of a caller, who does not stay to serve others: if
// some wait, a goroutine takes the flight over.
func (l *lane) land() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue.empty() {
		l.freeFlight()
	} else {
		l.cfg.Panics.Go("combine", l.work)
	}
}

// freeFlight is called with mu held.
func (l *lane) freeFlight() {
	if l.flights--; l.flights == 0 {
		l.idle.Broadcast()
	}
}

// takeTogether queues a copy of reqs, which the store may still be reading
// when the caller has left, and waits for the verdicts.
func (l *lane) takeTogether(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	c := newCall(ctx, out)
	c.copy(reqs, nil)
	if l.join(c) {
		c.await()
	}
}

// join queues c, or fails and frees it.
func (l *lane) join(c *call) bool {
	c.lane = l
	err := l.enqueue(c)
	if err != nil {
		c.verdicts.fail(err)
		c.free()
	}
	return err == nil
}

// await waits for the verdicts of a call that has joined a lane, and frees it.
func (c *call) await() {
	select {
	case <-c.done:
		c.free()
	case <-c.ctx.Done():
		c.lane.leave(c)
	}
}

// enqueue queues c. As the copy was made without the lock, all may have
// changed; a flight that has become free is used by a goroutine.
func (l *lane) enqueue(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errClosed
	case !l.queue.empty() && l.queue.requests+len(c.reqs) > l.cfg.Queue:
		return l.full()
	}
	l.queue.push(c)
	l.linger.came(len(c.reqs))
	if l.flights < l.cfg.InFlight {
		l.flights++
		l.cfg.Panics.Go("combine", l.work)
	}
	return nil
}

// leave is for a caller whose context is over. What is still queued is not
// sent; what is sent goes on without the caller, whose memory stays alone.
func (l *lane) leave(c *call) {
	l.mu.Lock()
	queued := c.queued
	if queued {
		l.queue.remove(c)
	}
	l.mu.Unlock()
	if queued {
		c.verdicts.fail(l.noTurn(c.ctx))
		c.free()
		return
	}
	ctx, verdicts := c.ctx, c.verdicts
	verdicts.at = slices.Clone(verdicts.at)
	if c.state.CompareAndSwap(waiting, left) {
		verdicts.fail(fmt.Errorf("%w: %w", backends.ErrUnavailable, ctx.Err()))
	} else { // they are just being written
		<-c.done
		c.free()
	}
}

// full is why there is no room in the queue.
func (s *shared) full() error {
	if s.cfg.Answers() {
		return errOverloaded
	}
	return errFull
}

// noTurn is why a request was not sent whose caller has stopped waiting.
func (s *shared) noTurn(ctx context.Context) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%w: %w: %w", backends.ErrUnavailable, backends.ErrNotApplied, ctx.Err())
	case s.cfg.Answers():
		return errTooMany
	}
	return errNoTurn
}

// work sends what is queued, slice by slice, until nothing is. It owns one
// flight.
func (l *lane) work() {
	s := slicePool.Get().(*slice)
	defer slicePool.Put(s)
	for l.gather(s) {
		began := time.Now()
		l.send(s)
		l.lingerAfter(len(s.reqs), time.Since(began))
	}
}

// lingerAfter waits for the next requests of the callers that a slice of n has answered. It yields
// instead of sleeping, because no timer is as exact.
func (l *lane) lingerAfter(n int, took time.Duration) {
	if l.cfg.InFlight > 1 {
		return
	}
	l.mu.Lock()
	n = min(n, l.cfg.MaxSlice-l.queue.requests)
	lingers := l.linger.begin(n)
	l.mu.Unlock()
	if !lingers {
		return
	}
	for end := time.Now().Add(min(took/lingerShare, maxLinger)); l.linger.awaited.Load() > 0 && time.Now().Before(end); {
		runtime.Gosched()
	}
	l.mu.Lock()
	l.linger.end(n)
	l.mu.Unlock()
}

// gather moves the head of the queue into s, or gives the flight back.
func (l *lane) gather(s *slice) bool {
	s.clear()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.queue.empty() {
		c := l.queue.head
		if len(s.reqs) > 0 && len(s.reqs)+len(c.reqs) > l.cfg.MaxSlice {
			break
		}
		l.queue.remove(c)
		s.add(c)
	}
	if len(s.calls) == 0 {
		l.freeFlight()
		return false
	}
	return true
}

func (l *lane) send(s *slice) {
	ctx, cancel := l.deadline(s)
	defer cancel()
	for len(s.out) < len(s.reqs) {
		s.out = append(s.out, limit.Verdict{})
	}
	if err := l.cfg.Panics.Do("combine", func() { l.next.Take(ctx, s.reqs, s.out[:len(s.reqs)]) }); err != nil {
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
func (l *lane) deadline(s *slice) (context.Context, context.CancelFunc) {
	var latest time.Time
	bounded := true
	for _, c := range s.calls {
		d, ok := c.ctx.Deadline()
		bounded = bounded && ok
		if d.After(latest) {
			latest = d
		}
	}
	if !bounded {
		ctx, cancel := context.WithTimeout(l.ctx, l.cfg.Timeout)
		if d, _ := ctx.Deadline(); !latest.After(d) {
			return ctx, cancel
		}
		cancel()
	}
	return context.WithDeadline(l.ctx, latest)
}

// close fails those who wait and those who come.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for !l.queue.empty() {
		c := l.queue.head
		l.queue.remove(c)
		c.fail(errClosed)
	}
}

// wait waits for the slices under way.
func (l *lane) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.flights > 0 {
		l.idle.Wait()
	}
}
