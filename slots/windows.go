package slots

import (
	"context"
	"slices"

	"github.com/headgate-rls/headgate/slots/plan"
)

// Slot returns the slot of an event, or ErrSlotNotFound.
func (s *Scheduler) Slot(ctx context.Context, eventID string) (Slot, error) {
	if err := checkName("eventId", eventID, MaxEventID); err != nil {
		return Slot{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	found, err := s.store.Find(ctx, []string{eventID})
	switch {
	case err != nil:
		return Slot{}, retryable(err)
	case len(found) == 0:
		return Slot{}, ErrSlotNotFound
	}
	return found[0], nil
}

// SlotsSince returns slots in the order in which they were created, from those
// after the position on, at most limit (1 to MaxBatch). A slot whose transaction is slow
// may appear before ones that were returned; ask from some seconds back to miss
// none.
func (s *Scheduler) SlotsSince(ctx context.Context, after Position, limit int) ([]Slot, error) {
	if limit < 1 || limit > MaxBatch {
		return nil, BadField("limit", "is %d, want 1 to %d", limit, MaxBatch)
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	list, err := s.store.SlotsSince(ctx, after, limit)
	return list, retryable(err)
}

// maxWindows bounds what Windows returns.
const maxWindows = 1000

// Windows returns the n windows (1 to 1000) of the config from the one that
// holds the instant fromMs on. Those that nobody has asked for count 0.
func (s *Scheduler) Windows(ctx context.Context, c Config, fromMs int64, n int) ([]Window, error) {
	if n < 1 || n > maxWindows {
		return nil, BadField("limit", "is %d, want 1 to %d", n, maxWindows)
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	from := plan.WindowStart(fromMs*1000, c.SizeMs)
	series, err := s.series(ctx, c)
	if err != nil {
		return nil, retryable(err)
	}
	have, err := s.store.Windows(ctx, series, from, from+int64(n)*c.SizeMs, n)
	if err != nil {
		return nil, retryable(err)
	}
	out := make([]Window, n)
	for i := range out {
		out[i].StartMs = from + int64(i)*c.SizeMs
	}
	known := make([]bool, n)
	place := func(w Window) {
		if i := (w.StartMs - from) / c.SizeMs; !known[i] {
			out[i], known[i] = w, true
		}
	}
	for _, w := range have {
		place(w)
	}
	if missing := slices.Index(known, false); missing >= 0 {
		// Windows without rows may hold what was scheduled under another size.
		inside, err := s.store.Scheduled(ctx, series, out[missing].StartMs, from+int64(n)*c.SizeMs)
		if err != nil {
			return nil, retryable(err)
		}
		for _, w := range inside {
			place(w)
		}
	}
	return out, nil
}

// NextFree returns the start of the first window with room for one event more,
// from the window on that holds the instant fromMs; a window that the config's
// calendar closes has none. ok is false if the config is paused, or if there is no
// such window.
func (s *Scheduler) NextFree(ctx context.Context, c Config, fromMs int64) (windowMs int64, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	series, err := s.series(ctx, c)
	if c.Max == 0 || err != nil {
		return 0, false, retryable(err)
	}
	for at := plan.WindowStart(fromMs*1000, c.SizeMs); ; {
		from, to, open := c.Options.Calendar.Span(at, c.SizeMs)
		if !open || from >= lastMs {
			return 0, false, nil
		}
		if at, ok, err = s.free(ctx, series, from, min(to, lastMs), c.Max); ok || err != nil {
			return at, ok, retryable(err)
		}
		at = to
	}
}

// free returns the first window in [fromMs, toMs) that counts less than max, whether it has a
// row or not.
func (s *Scheduler) free(ctx context.Context, series Series, fromMs, toMs,
	max int64) (windowMs int64, ok bool, err error) {
	for at := fromMs; at < toMs; {
		if windowMs, ok, err = s.store.Scout(ctx, series, at, toMs, max); !ok || err != nil {
			return 0, false, err
		}
		if at, err = s.store.Uncounted(ctx, series, windowMs, toMs, max); at == windowMs || err != nil {
			return windowMs, err == nil, err
		}
	}
	return 0, false, nil
}
