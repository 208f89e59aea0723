package slots

import (
	"context"
	"time"
)

// A waiter is one event on its way to a slot.
type waiter struct {
	ask      Ask
	config   Config
	series   Series
	firstMs  int64
	reachMs  int64 // windows end here that the event may have
	later    Span  // the stretch of open windows that it is in, once its first window is full
	deadline time.Time
	queued   time.Time // for the last time

	share  *share        // of the config
	first  *waiter       // waits for the same event, in the same group; nil: none
	done   chan struct{} // closed when the answer is here
	answer Answer
	err    error
}

// end hands the waiter its answer.
func (w *waiter) end(a Answer, err error) {
	w.answer, w.err = a, err
	w.share.leave()
	close(w.done)
}

// ended reports whether the waiter has its answer.
func (w *waiter) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// wait returns the answer, or the end of the context. The event may still get
// its slot then: ask again to know.
func (w *waiter) wait(ctx context.Context) BatchResult {
	select {
	case <-w.done:
	case <-ctx.Done():
		if !w.ended() { // both at once: the answer counts
			return BatchResult{Err: ctx.Err()}
		}
	}
	return BatchResult{Result{w.answer.Slot, w.answer.Status == Existing}, w.err}
}

// queueKey says which waiters share searches: those that want the same first
// window, and, once their first window is full, all of the same config and the same
// stretch of open windows.
type queueKey struct {
	configID string
	later    bool
	ms       int64 // the first window, or the end of the stretch
}

// A queue has the waiters that wait while those before them are being served. No waiter waits for
// others to join: one that finds no queue is served at once, and those that come meanwhile are
// served next, together.
type queue struct {
	waiting []*waiter

	// held are windows whose lock wait timed out, the last one at heldAt. Waiters that were queued before heldAt have
	// waited for these locks, too. Only the goroutine that serves the queue uses the two fields.
	held   []int64
	heldAt time.Time
}
