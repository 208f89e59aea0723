package slots

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"
)

// Assign gives the event the first window with room, or the slot that it has.
//
// Errors: *FieldError if the request is wrong, *ConfigNotFoundError, *RetryError if
// it is worth trying again, the context's error, and *StoreError. After an error
// the event may have a slot nevertheless: ask again to know.
func (s *Scheduler) Assign(ctx context.Context, r Request) (Result, error) {
	b := s.AssignBatch(ctx, []Request{r})[0]
	return b.Result, b.Err
}

// AssignBatch assigns up to MaxBatch events, each as if it were asked for alone,
// and returns their results in the same order. If an event is there twice, the first request counts,
// and later ones are replays of it. If the first fails, the next one counts.
func (s *Scheduler) AssignBatch(ctx context.Context, rs []Request) []BatchResult {
	out := make([]BatchResult, len(rs))
	if len(rs) > MaxBatch {
		for i := range out {
			out[i].Err = BadField("events", "has %d entries, at most %d", len(rs), MaxBatch)
		}
		return out
	}
	began := s.settings.Now()
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	todo := make([]int, len(rs))
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		firsts, repeats, byEvent := firstOfEach(rs, todo)
		s.assignAll(ctx, rs, out, firsts)
		todo = repeated(rs, out, repeats, byEvent)
	}
	for i := range rs {
		s.finish(rs[i], &out[i], began)
	}
	return out
}

// firstOfEach parts the first request of each event, which byEvent has too, from the later ones.
func firstOfEach(rs []Request, todo []int) (firsts, repeats []int, byEvent map[string]int) {
	byEvent = make(map[string]int, len(todo))
	for _, i := range todo {
		if _, seen := byEvent[rs[i].EventID]; seen {
			repeats = append(repeats, i)
			continue
		}
		byEvent[rs[i].EventID] = i
		firsts = append(firsts, i)
	}
	return firsts, repeats, byEvent
}

// repeated answers the later requests of events by what their first ones have got, and returns those
// that are still to be tried: their first one has failed, and they ask for something else.
func repeated(rs []Request, out []BatchResult, repeats []int, byEvent map[string]int) (todo []int) {
	for _, i := range repeats {
		f := byEvent[rs[i].EventID]
		switch err := out[f].Err; {
		case err == nil:
			out[i] = out[f]
			out[i].Replayed = true
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
			rs[i].At.Equal(rs[f].At) && rs[i].ConfigName == rs[f].ConfigName:
			out[i] = out[f]
		default:
			todo = append(todo, i)
		}
	}
	return todo
}

// assignAll assigns events, of which none is there twice.
func (s *Scheduler) assignAll(ctx context.Context, rs []Request, out []BatchResult, todo []int) {
	for try := 0; len(todo) > 0; try++ {
		if try < turnAfter || s.store.Pool().Max == 1 {
			todo = s.assign(ctx, rs, out, todo)
		} else {
			todo = s.assignInTurn(ctx, rs, out, todo)
		}
		if try > 2 && len(todo) > 0 && s.backOff(ctx, try) != nil {
			break
		}
	}
}

// assign assigns those of the events that are to do, and returns those whose config
// has another version by now.
func (s *Scheduler) assign(ctx context.Context, rs []Request, out []BatchResult, todo []int) (again []int) {
	waiters := make([]*waiter, len(todo))
	for k, i := range todo {
		waiters[k], out[i].Err = s.prepare(ctx, rs[i])
	}
	s.submit(waiters)
	for k, i := range todo {
		c := waiters[k]
		if c == nil {
			continue
		}
		out[i] = c.wait(ctx)
		if s.superseded(ctx, c.config, out[i].Err) {
			again = append(again, i)
		}
	}
	return again
}

// superseded reports whether an event was refused by a version of a config that is not the
// active one any more.
func (s *Scheduler) superseded(ctx context.Context, c Config, err error) bool {
	if KindOf(err) == Superseded {
		s.configs.drop(c)
		return true
	}
	refused := errors.Is(err, ErrPaused) || errors.Is(err, ErrExhausted) || errors.As(err, new(*DelayError))
	if !refused || s.configs.check(ctx) != nil {
		return false
	}
	now, err := s.configs.get(ctx, c.Name)
	return err == nil && now.ID != c.ID
}

// finish makes a failure one that callers understand, and reports it.
func (s *Scheduler) finish(r Request, b *BatchResult, began time.Time) {
	b.Err = retryable(b.Err)
	outcome := outcomeOf(b)
	s.settings.Metrics.assigned(outcome, s.settings.Now().Sub(began))
	if outcome == OutcomeNew {
		s.settings.Metrics.delayed(cmp.Or(r.ConfigName, s.settings.DefaultConfig), b.Delay())
	}
	s.logOutcome(r, b, outcome)
}

// logOutcome logs what became of a request.
func (s *Scheduler) logOutcome(r Request, b *BatchResult, outcome Outcome) {
	log := s.settings.Log
	debug := log.Enabled(context.Background(), slog.LevelDebug)
	switch {
	case outcome == OutcomeNew && debug:
		window := time.UnixMilli(b.WindowMs).UTC().Format(time.RFC3339Nano)
		log.Debug("slot assigned", "event_id", r.EventID, "window", window)
	case outcome == OutcomeReplayed && debug:
		log.Debug("the event already has a slot", "event_id", r.EventID)
		if b.RequestedUs != r.At.UnixMicro() {
			log.Debug("the event already has a slot, for another requested time", "event_id", r.EventID,
				"requested", b.Requested(), "now", r.At.UTC())
		}
	case outcome == OutcomeTooLate:
		log.Debug("no slot assigned: none is within the config's maximum delay", "event_id", r.EventID, "config_name",
			r.ConfigName)
	case outcome == OutcomeExhausted:
		if allowed, skipped := s.exhausted.Allow(); allowed {
			log.Error("no slot assigned: no window that was searched has room", "event_id", r.EventID, "config_name",
				r.ConfigName, "skipped", skipped)
		}
	}
}
