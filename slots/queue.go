package slots

import (
	"context"
	"sync/atomic"
	"time"
)

// maxGroup bounds the events that share a search.
const maxGroup = 256

// A caller is one event on its way to a slot.
type caller struct {
	ask      Ask
	config   Config
	series   Series
	firstMs  int64
	later    Span // the stretch of open windows that it is in, once its first window is full
	deadline time.Time

	waiting *atomic.Int64 // counts callers
	done    chan struct{} // closed when the answer is here
	answer  Answer
	err     error
}

// end hands the caller its answer.
func (c *caller) end(a Answer, err error) {
	c.answer, c.err = a, err
	c.waiting.Add(-1)
	close(c.done)
}

// ended tells whether the caller has its answer.
func (c *caller) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wait returns the answer, or the end of the context. The event may still get
// its slot then; asking again tells.
func (c *caller) wait(ctx context.Context) BatchResult {
	select {
	case <-c.done:
	case <-ctx.Done():
		if !c.ended() { // both at once: the answer counts
			return BatchResult{Err: ctx.Err()}
		}
	}
	return BatchResult{Result{c.answer.Slot, c.answer.Status == Existing}, c.err}
}

// queueKey says which callers share searches: those that want the same first
// window, and, once their first window is full, all of the same config and the same
// stretch of open windows.
type queueKey struct {
	configID string
	later    bool
	ms       int64 // the first window, or the end of the stretch
}

// A queue has the callers that wait while those before them are being served.
// Nobody waits for company: a caller that finds no queue is served at once, and
// those who come meanwhile are next, together.
type queue struct {
	waiting []*caller
}

// submit has callers (those that are not nil) served; each of them ends.
func (s *Scheduler) submit(callers []*caller) {
	for _, c := range callers {
		if c == nil {
			continue
		}
		c.waiting = &s.waiting
		if s.waiting.Add(1) > int64(s.settings.MaxWaiting) {
			c.end(Answer{}, ErrOverloaded)
			continue
		}
		if c.ask.FirstMax > 0 && !s.hints.firstIsFull(c.config.ID, c.firstMs, c.ask.FirstMax) {
			s.enqueue(queueKey{configID: c.config.ID, ms: c.firstMs}, c)
			continue
		}
		s.goOn(c, c.firstMs+c.config.SizeMs)
	}
}

// goOn queues a caller for the open windows from the instant on.
func (s *Scheduler) goOn(c *caller, fromMs int64) {
	from, to, ok := c.config.Options.Calendar.Span(fromMs, c.config.SizeMs)
	if !ok || from >= lastMs {
		c.end(Answer{}, ErrExhausted)
		return
	}
	c.later, c.ask.FirstMax = Span{from, min(to, lastMs)}, 0
	s.enqueue(queueKey{c.config.ID, true, c.later.ToMs}, c)
}

// lastMs is the end of all windows.
var lastMs = maxTime.UnixMilli()

func (s *Scheduler) enqueue(key queueKey, c *caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, served := s.queues[key]
	if !served {
		q = new(queue)
		s.queues[key] = q
		go s.serveQueue(key, q)
	}
	q.waiting = append(q.waiting, c)
}

// serveQueue serves callers until none is left. It ends: every search has a
// deadline, and the number of callers a bound.
func (s *Scheduler) serveQueue(key queueKey, q *queue) {
	for {
		s.mu.Lock()
		if len(q.waiting) == 0 {
			delete(s.queues, key)
			s.mu.Unlock()
			return
		}
		n := min(len(q.waiting), maxGroup)
		group := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		s.mu.Unlock()
		s.serve(key, group)
	}
}

// serve answers every caller of the group, or queues it for later windows.
func (s *Scheduler) serve(key queueKey, group []*caller) {
	deadline := group[0].deadline
	for _, c := range group {
		if c.deadline.After(deadline) {
			deadline = c.deadline
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	leaders, twins := pairTwins(group)
	s.place(ctx, key, leaders)
	for _, c := range twins {
		switch {
		case !c.twin.ended():
			s.goOn(c.caller, c.firstMs+c.config.SizeMs) // as the one before
		case c.twin.answer.Status != Unplaced:
			// The one before has its answer; this one gets the same, as a repeat.
			c.end(Answer{Existing, c.twin.answer.Slot}, c.twin.err)
		default:
			c.end(Answer{}, c.twin.err)
		}
	}
}

// A twin waits for the same event as a caller before it.
type twin struct {
	*caller
	twin *caller
}

// pairTwins parts callers of different events from those that repeat one of
// them.
func pairTwins(group []*caller) (leaders []*caller, twins []twin) {
	if len(group) == 1 {
		return group, nil
	}
	first := make(map[string]*caller, len(group))
	for _, c := range group {
		if before, ok := first[c.ask.EventID]; ok {
			twins = append(twins, twin{c, before})
			continue
		}
		first[c.ask.EventID] = c
		leaders = append(leaders, c)
	}
	return leaders, twins
}
