package slots

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/slots/plan"
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
	defer background.Yield(ctx)() // others search
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

// prepare checks a request and makes it a waiter for a search.
func (s *Scheduler) prepare(ctx context.Context, r Request) (*waiter, error) {
	us, err := s.checkRequest(&r)
	if err != nil {
		return nil, err
	}
	config, err := s.configs.get(ctx, r.ConfigName)
	if err != nil {
		return nil, named(err, r.ConfigName)
	}
	return s.newWaiter(ctx, r, us, config)
}

// newWaiter makes a request, of an instant in microseconds, a waiter for a search under a
// version of its config.
func (s *Scheduler) newWaiter(ctx context.Context, r Request, us int64, config Config) (*waiter, error) {
	series, err := s.series(ctx, config)
	if err != nil {
		return nil, err
	}
	firstMs := plan.WindowStart(us, config.SizeMs)
	elapsed := plan.Elapsed(us, config.SizeMs)
	deadline, _ := ctx.Deadline()
	c := &waiter{
		config: config, series: series, firstMs: firstMs, reachMs: reachOf(&config, us), deadline: deadline,
		done: make(chan struct{}),
		ask: Ask{
			EventID: r.EventID, SlotID: s.settings.NewID(), RequestedUs: us, ElapsedMs: elapsed,
			FirstMax: plan.FirstCapacity(config.Max, elapsed, config.SizeMs), Bits: s.settings.Bits(),
		},
	}
	if from, _, open := config.Options.Calendar.Span(firstMs, config.SizeMs); !open || from != firstMs {
		c.ask.FirstMax = 0 // the calendar closes it
	}
	return c, nil
}

// A DelayError says that no window has room within the config's MaxDelay of the requested time.
type DelayError struct {
	MaxDelay time.Duration
	// FreeMs is the start of the first window that has room, when it was looked for; zero if that is not known.
	FreeMs int64
}

func (e *DelayError) Error() string {
	text := fmt.Sprintf("no window within the config's maxDelay (%v) of the requested time has room", e.MaxDelay)
	if e.FreeMs != 0 {
		text += "; the first that has begins at " + time.UnixMilli(e.FreeMs).UTC().Format(time.RFC3339Nano)
	}
	return text
}

// reachOf is the end of the windows that an event may get a slot in: every instant of theirs is within MaxDelay
// of the requested time.
func reachOf(c *Config, requestedUs int64) int64 {
	if c.Options.MaxDelayMs == 0 {
		return lastMs
	}
	return min(lastMs, plan.WindowStart(requestedUs+c.Options.MaxDelayMs*1000, c.SizeMs))
}

// lookWithin bounds the look for windows with room behind those that events may have, while the next callers wait.
const lookWithin = 250 * time.Millisecond

// refuse ends waiters that no window in reach has room for. Those whose reach ends before the same free window share
// the look for it.
func (s *Scheduler) refuse(ctx context.Context, waiters []*waiter) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	var full Span
	for _, w := range waiters {
		w.end(Answer{}, s.beyondReach(ctx, w, &full))
	}
}

// beyondReach returns the *DelayError of a waiter. full are windows that are known to have no room, before one that
// has; others are looked for. It is worth asking again when an event that then asks for the present has the free window
// in its reach. An event that asks for a time to come is to ask for another one: to wait does not help it.
func (s *Scheduler) beyondReach(ctx context.Context, w *waiter, full *Span) error {
	if w.reachMs < full.FromMs || w.reachMs > full.ToMs {
		free, ok, err := s.NextFree(ctx, w.config, w.reachMs)
		*full = (Span{w.reachMs, free})
		if !ok || err != nil {
			full.ToMs = 0
		}
	}
	e := &DelayError{time.Duration(w.config.Options.MaxDelayMs) * time.Millisecond, full.ToMs}
	after := retrySoon
	if e.FreeMs != 0 {
		after = max(after, time.UnixMilli(e.FreeMs+w.config.SizeMs).Add(-e.MaxDelay).Sub(s.settings.Now()))
	}
	if after > longestRetry || time.UnixMilli(w.firstMs).After(s.settings.Now()) {
		return e
	}
	return &RetryError{after, e}
}
