package slots

import (
	"context"
	"time"
)

// maxGroup bounds the events that share a search.
const maxGroup = 256

// A caller is one event on its way to a slot.
type caller struct {
	ask      Ask
	config   Config
	firstMs  int64
	deadline time.Time

	done   chan struct{} // closed when the answer is here
	answer Answer
	err    error
}

// end hands the caller its answer.
func (c *caller) end(a Answer, err error) {
	c.answer, c.err = a, err
	close(c.done)
}

// wait returns the answer, or the end of the context. The event may still get
// its slot then; asking again tells.
func (c *caller) wait(ctx context.Context) BatchResult {
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done: // both at once: the answer counts
		default:
			return BatchResult{Err: ctx.Err()}
		}
	}
	return BatchResult{Result{c.answer.Slot, c.answer.Status == Existing}, c.err}
}

// queueKey says which callers can share a search.
type queueKey struct {
	configID string
	firstMs  int64
}

// A queue has the callers that wait while those before them are being served.
// Nobody waits for company: a caller that finds no queue is served at once, and
// those who come meanwhile are next, together (F4).
type queue struct {
	waiting []*caller
}

// submit has callers (those that are not nil) served; each of them ends.
func (s *Scheduler) submit(callers []*caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range callers {
		if c == nil {
			continue
		}
		if s.waiting >= s.settings.MaxWaiting {
			c.end(Answer{}, ErrOverloaded)
			continue
		}
		s.waiting++
		if s.settings.Alone {
			go s.serve([]*caller{c})
			continue
		}
		key := queueKey{c.config.ID, c.firstMs}
		q, served := s.queues[key]
		if !served {
			q = new(queue)
			s.queues[key] = q
			go s.serveQueue(key, q)
		}
		q.waiting = append(q.waiting, c)
	}
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
		s.serve(group)
	}
}

// serve answers every caller of the group.
func (s *Scheduler) serve(group []*caller) {
	defer func() {
		s.mu.Lock()
		s.waiting -= len(group)
		s.mu.Unlock()
	}()
	deadline := group[0].deadline
	for _, c := range group {
		if c.deadline.After(deadline) {
			deadline = c.deadline
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	leaders, twins := pairTwins(group)
	s.place(ctx, leaders)
	for _, c := range twins {
		// The one before has its answer; this one is told the same, as a repeat.
		if c.twin.answer.Status != Unplaced {
			c.end(Answer{Existing, c.twin.answer.Slot}, c.twin.err)
			continue
		}
		c.end(Answer{}, c.twin.err)
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
