package slots

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Times of waiting, all of them within the callers' deadline.
const (
	backOffFirst = 5 * time.Millisecond
	backOffMost  = 250 * time.Millisecond
	maxTries     = 8 // after errors that pass
	// noteWithin bounds the wait of a note of full windows, which waits for changes of
	// configs, while the next callers wait for it.
	noteWithin = 250 * time.Millisecond
)

// A placing is a group of callers of one queue on their way.
type placing struct {
	*Scheduler
	key    queueKey
	config Config
	series Series
	left   []*caller
	tries  int // errors so far
}

// place ends every caller of the group with its slot or an error, or queues it for
// later windows.
func (s *Scheduler) place(ctx context.Context, key queueKey, group []*caller) {
	p := &placing{Scheduler: s, key: key, config: group[0].config, series: group[0].series, left: group}
	if p.config.Max == 0 {
		p.endAll(p.pausedUnlessPlaced(ctx))
		return
	}
	for len(p.left) > 0 {
		if err := p.step(ctx); err != nil {
			p.endAll(err)
		}
	}
}

// pausedUnlessPlaced answers for those that have a slot from before the pause:
// a pause writes nothing.
func (p *placing) pausedUnlessPlaced(ctx context.Context) error {
	ids := make([]string, len(p.left))
	for i, c := range p.left {
		ids[i] = c.ask.EventID
	}
	have, err := p.store.Find(ctx, ids)
	if err != nil {
		return err
	}
	for _, slot := range have {
		p.answer(func(c *caller) (Answer, bool) { return Answer{Existing, slot}, c.ask.EventID == slot.EventID })
	}
	return ErrPaused
}

// step does one search and deals with its outcome. An error ends all that are
// left.
func (p *placing) step(ctx context.Context) error {
	search := p.search()
	generation := p.configs.known()
	epoch := p.hints.apply(search)
	began := p.settings.Now()
	found, err := p.engine.Assign(ctx, search)
	p.settings.Observer.Searched(len(search.Asks), found.Windows, found.Contended, p.settings.Now().Sub(began))
	p.deliver(&found)
	if err != nil {
		return p.afterError(ctx, err)
	}
	p.note(ctx, p.hints.learn(epoch, search, &found), generation)
	p.goOn(search)
	return nil
}

// note writes down full windows. A hint that is not there costs time, which is no reason to
// fail, or to wait.
func (p *placing) note(ctx context.Context, full []Span, generation int64) {
	if len(full) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	for _, span := range full {
		_ = p.store.NoteFull(ctx, p.series, p.config.Max, span, generation)
	}
}

// search makes the search for those that are left.
func (p *placing) search() *Search {
	s := &Search{
		Series: p.series, ConfigID: p.config.ID, Max: p.config.Max, Stratified: p.config.Options.Stratified,
		Asks: make([]Ask, len(p.left)),
	}
	earliest := p.left[0].later.FromMs
	for i, c := range p.left {
		s.Asks[i] = c.ask
		s.Asks[i].FromMs = c.later.FromMs
		earliest = min(earliest, c.later.FromMs)
	}
	switch {
	case p.key.later:
		s.FirstMs, s.EndMs = math.MinInt64, p.key.ms
		s.BaseMs, s.FromMs = earliest, earliest
		s.Mixed = len(p.left) > 1
	case p.settings.Procedure && len(p.left) == 1 && p.config.Options.Calendar == nil:
		s.FirstMs, s.BaseMs, s.FromMs, s.EndMs = p.key.ms, p.key.ms+s.SizeMs, p.key.ms+s.SizeMs, lastMs
	default:
		s.FirstMs, s.FirstOnly = p.key.ms, true
	}
	return s
}

// goOn queues those that are left for later windows than were searched.
func (p *placing) goOn(s *Search) {
	left := p.left
	p.left = nil
	for _, c := range left {
		from := c.firstMs + p.config.SizeMs
		if !s.FirstOnly {
			from = s.EndMs
		}
		p.Scheduler.goOn(c, from)
	}
}

// deliver ends the callers that have an answer.
func (p *placing) deliver(f *Found) {
	k := -1
	p.answer(func(*caller) (Answer, bool) {
		k++
		if k >= len(f.Answers) || f.Answers[k].Status == Unplaced {
			return Answer{}, false
		}
		return f.Answers[k], true
	})
}

// answer ends those callers that f has an answer for.
func (p *placing) answer(f func(*caller) (Answer, bool)) {
	p.left = slices.DeleteFunc(slices.Clone(p.left), func(c *caller) bool {
		a, ok := f(c)
		if ok {
			c.end(a, nil)
		}
		return ok
	})
}

func (p *placing) endAll(err error) {
	for _, c := range p.left {
		c.end(Answer{}, err)
	}
	p.left = nil
}

// afterError decides whether to try again. What an unclear transaction did shows
// when the events are looked for again.
func (p *placing) afterError(ctx context.Context, err error) error {
	kind := KindOf(err)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.tries++
	if (kind != Passing && kind != Duplicate && kind != Held) || p.tries >= maxTries {
		return err
	}
	p.settings.Observer.Retried(kind)
	if kind == Duplicate && p.tries == 1 {
		// Another has given one of the events a slot; it is there now. That says
		// nothing about the others.
		return nil
	}
	return p.backOff(ctx, p.tries)
}

// backOff waits before the given try, with full jitter, so that those who got into each
// other's way do not meet again.
func (s *Scheduler) backOff(ctx context.Context, try int) error {
	most := min(backOffFirst<<min(try, 10), backOffMost)
	return pause(ctx, time.Duration(rand.Int64N(int64(most))))
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
