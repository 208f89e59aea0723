package slots

import (
	"context"
	"math/rand/v2"
	"time"
)

// Times of waiting, all of them within the callers' deadline.
const (
	heldPoll     = time.Millisecond // mean time between looks at a window that is held
	heldLongest  = 50 * time.Millisecond
	backOffFirst = 5 * time.Millisecond
	backOffMost  = 250 * time.Millisecond
	maxTries     = 8 // after errors that pass
)

// A placing is a group of callers with the same config and first window on
// their way.
type placing struct {
	*Scheduler
	config  Config
	firstMs int64
	left    []*caller

	span     span  // the stretch of open windows that is searched
	searched int64 // windows in reach of spans that are searched already
	tries    int   // errors so far
	held     time.Time
}

// A span is a stretch of open windows: later ones from base on, before end.
type span struct{ baseMs, endMs int64 }

// place ends every caller of the group with its slot or an error.
func (s *Scheduler) place(ctx context.Context, group []*caller) {
	p := &placing{Scheduler: s, config: group[0].config, firstMs: group[0].firstMs, left: group}
	if p.config.Max == 0 {
		p.endAll(p.pausedUnlessPlaced(ctx))
		return
	}
	if err := p.open(); err != nil {
		p.endAll(err)
		return
	}
	for len(p.left) > 0 {
		if err := p.step(ctx); err != nil {
			p.endAll(err)
		}
	}
}

// pausedUnlessPlaced answers for those that have a slot from before the pause
// (F17): a pause writes nothing.
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

// open finds out which windows are open, the first one included.
func (p *placing) open() error {
	cal, size := p.config.Options.Calendar, p.config.SizeMs
	from, _, ok := cal.Span(p.firstMs, size)
	if !ok || from != p.firstMs {
		for _, c := range p.left {
			c.ask.FirstMax = 0
		}
	}
	return p.nextSpan(p.firstMs + size)
}

// nextSpan goes on to the open windows at fromMs or after.
func (p *placing) nextSpan(fromMs int64) error {
	base, end, ok := p.config.Options.Calendar.Span(fromMs, p.config.SizeMs)
	if !ok {
		return ErrExhausted
	}
	p.span = span{base, end}
	return nil
}

// reach is how many windows one request searches at least, if they are open.
func (p *placing) reach() int64 {
	return int64(p.settings.Chunk) * int64(1+p.settings.Chunks)
}

// step does one search and deals with its outcome. An error ends all that are
// left.
func (p *placing) step(ctx context.Context) error {
	search := p.search()
	epoch := p.hints.apply(search)
	began, start := p.settings.Now(), time.Now()
	found, err := p.engine.Assign(ctx, search)
	p.settings.Observer.Searched(len(search.Asks), found.Windows, found.Contended, found.Provisioned, p.settings.Now().Sub(began))
	placed := p.deliver(&found)
	if err != nil {
		return p.afterError(ctx, err)
	}
	p.hints.learn(epoch, search, &found)
	if placed > 0 {
		p.held = time.Time{}
	}
	switch {
	case len(p.left) == 0:
		return nil
	case found.Held:
		return p.waitHeld(ctx, start)
	}
	p.held = time.Time{}
	return p.afterExhaustion(search)
}

// search makes the search for those that are left.
func (p *placing) search() *Search {
	s := &Search{
		Series: p.series(p.config), ConfigID: p.config.ID, Max: p.config.Max, Stratified: p.config.Options.Stratified,
		FirstMs: p.firstMs, BaseMs: p.span.baseMs, FromMs: p.span.baseMs, EndMs: p.span.endMs,
		Chunk: p.settings.Chunk, Chunks: p.settings.Chunks,
		Wait: p.settings.Wait && !p.heldTooLong(), waitFrom: p.held,
		Asks: make([]Ask, len(p.left)),
	}
	for i, c := range p.left {
		s.Asks[i] = c.ask
		if p.searched > 0 {
			s.Asks[i].FirstMax = 0
		}
	}
	return s
}

// deliver ends the callers that have an answer.
func (p *placing) deliver(f *Found) (placed int) {
	k := -1
	p.answer(func(*caller) (Answer, bool) {
		k++
		if k >= len(f.Answers) || f.Answers[k].Status == Unplaced {
			return Answer{}, false
		}
		placed++
		return f.Answers[k], true
	})
	return placed
}

// answer ends those callers that f has an answer for.
func (p *placing) answer(f func(*caller) (Answer, bool)) {
	var left []*caller
	for _, c := range p.left {
		if a, ok := f(c); ok {
			c.end(a, nil)
		} else {
			left = append(left, c)
		}
	}
	p.left = left
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
	if (kind != Passing && kind != Duplicate) || p.tries >= maxTries {
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

func (p *placing) heldTooLong() bool {
	return !p.held.IsZero() && time.Since(p.held) >= heldLongest
}

// waitHeld waits a moment for whoever holds the window that the search begun at
// start came to.
func (p *placing) waitHeld(ctx context.Context, start time.Time) error {
	if p.held.IsZero() {
		p.held = start
	}
	return pause(ctx, time.Duration(rand.Int64N(int64(2*heldPoll))))
}

// afterExhaustion goes on after closed time, as long as the reach lasts.
func (p *placing) afterExhaustion(s *Search) error {
	if s.LimitMs(s.GridMs()) < s.EndMs {
		return ErrExhausted
	}
	p.searched += (s.EndMs - s.BaseMs) / s.SizeMs
	if p.searched >= p.reach() {
		return ErrExhausted
	}
	return p.nextSpan(s.EndMs)
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
