package slots

import (
	"context"

	"github.com/headgate-rls/headgate/slots/plan"
)

// maxGroup bounds the events that share a search.
const maxGroup = 256

// submit has waiters (those that are not nil) served; each of them ends.
func (s *Scheduler) submit(waiters []*waiter) {
	for _, w := range waiters {
		if w == nil {
			continue
		}
		var ok bool
		if w.share, ok = s.shares.join(w.config.Name); !ok {
			w.end(Answer{}, ErrOverloaded)
			continue
		}
		if w.ask.FirstMax == 0 || s.windows.firstIsFull(w.config.ID, w.firstMs, w.ask.FirstMax) {
			w.ask.FirstMax = 0
			if s.goOn(w, w.firstMs+w.config.SizeMs) {
				continue
			}
		}
		s.enqueue(queueKey{configID: w.config.ID, ms: w.firstMs}, w)
	}
}

// goOn queues a waiter for the open windows from the instant on, unless it may have none of them.
func (s *Scheduler) goOn(w *waiter, fromMs int64) bool {
	from, to, ok := w.config.Options.Calendar.Span(fromMs, w.config.SizeMs)
	switch {
	case ok && from >= w.reachMs && w.reachMs < lastMs:
		return false
	case !ok || from >= lastMs:
		w.end(Answer{}, ErrExhausted)
		return true
	}
	if w.config.Options.Calendar != nil {
		to = min(to, stretchEnd(from, w.config.SizeMs))
	}
	to = min(to, lastMs)
	w.later, w.ask.FirstMax = Span{from, min(to, w.reachMs)}, 0
	s.enqueue(queueKey{w.config.ID, true, to}, w)
	return true
}

// stretchMs is less than the 400 days after which Calendar.Span cuts what is open for longer.
// That cut depends on where a waiter begins, so that those of different windows would not
// share searches; stretches end at a multiple of stretchMs before.
const stretchMs = 360 * 24 * 3_600_000

// stretchEnd is the end of the stretch of windows of the size that the window at fromMs
// is in, if a calendar opens all of them.
func stretchEnd(fromMs, sizeMs int64) int64 {
	end := plan.WindowStart(fromMs*1000, stretchMs) + stretchMs
	return plan.WindowStart((end+sizeMs-1)*1000, sizeMs)
}

func (s *Scheduler) enqueue(key queueKey, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, served := s.queues[key]
	if !served {
		q = new(queue)
		s.queues[key] = q
		go s.serveQueue(key, q)
	}
	w.queued = s.settings.Now()
	q.waiting = append(q.waiting, w)
}

// serveQueue serves waiters until none is left. It ends: every search has a
// deadline, and the number of waiters a bound.
func (s *Scheduler) serveQueue(key queueKey, q *queue) {
	for {
		s.mu.Lock()
		if len(q.waiting) == 0 {
			delete(s.queues, key)
			s.mu.Unlock()
			return
		}
		share := q.waiting[0].share
		s.mu.Unlock()
		s.serveSome(key, q, share)
	}
}

// serveSome serves waiters of a queue that has some, as one search of their config.
func (s *Scheduler) serveSome(key queueKey, q *queue, of *share) {
	of.begin() // waiters that come meanwhile are served together with the others
	defer of.end()
	s.mu.Lock()
	n := min(len(q.waiting), maxGroup)
	waiters := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	s.mu.Unlock()
	if waiters[0].queued.After(q.heldAt) {
		q.held = nil
	}
	s.serve(key, q, waiters)
}

// serve answers every waiter, or queues it for later windows.
func (s *Scheduler) serve(key queueKey, q *queue, waiters []*waiter) {
	deadline := waiters[0].deadline
	for _, w := range waiters {
		if w.deadline.After(deadline) {
			deadline = w.deadline
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if s.settings.Turn != nil {
		defer s.settings.Turn(ctx)()
	}
	firsts, repeats := parted(waiters)
	left, searched := s.place(ctx, key, q, firsts)
	var beyond []*waiter
	for _, w := range left {
		from := w.firstMs + w.config.SizeMs
		if !searched.FirstOnly {
			from = searched.EndMs
		}
		if !s.goOn(w, from) {
			beyond = append(beyond, w)
		}
	}
	s.refuse(ctx, beyond)
	for _, w := range repeats {
		switch first := w.first; {
		case !first.ended():
			if !s.goOn(w, w.firstMs+w.config.SizeMs) { // as the first one
				s.refuse(ctx, []*waiter{w})
			}
		case first.answer.Status != Unplaced:
			w.end(Answer{Existing, first.answer.Slot}, first.err)
		default:
			w.end(Answer{}, first.err)
		}
	}
}

// parted parts the first waiter of each event from those that wait for the same event.
func parted(waiters []*waiter) (firsts, repeats []*waiter) {
	if len(waiters) == 1 {
		return waiters, nil
	}
	byEvent := make(map[string]*waiter, len(waiters))
	for _, w := range waiters {
		if first, ok := byEvent[w.ask.EventID]; ok {
			w.first = first
			repeats = append(repeats, w)
			continue
		}
		byEvent[w.ask.EventID] = w
		firsts = append(firsts, w)
	}
	return firsts, repeats
}
