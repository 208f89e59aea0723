package slots

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/slots/plan"
)

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
// in its reach.
func (s *Scheduler) beyondReach(ctx context.Context, w *waiter, full *Span) error {
	if w.reachMs < full.FromMs || w.reachMs > full.ToMs {
		free, ok, err := s.NextFree(ctx, w.config, w.reachMs)
		if *full = (Span{w.reachMs, free}); !ok || err != nil {
			full.ToMs = 0
		}
	}
	e := &DelayError{time.Duration(w.config.Options.MaxDelayMs) * time.Millisecond, full.ToMs}
	after := retrySoon
	if e.FreeMs != 0 {
		after = max(after, time.UnixMilli(e.FreeMs+w.config.SizeMs).Add(-e.MaxDelay).Sub(s.settings.Now()))
	}
	return &RetryError{after, e}
}
