package slots

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
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

// A group is the waiters that share searches until each has its answer or waits for later windows.
type group struct {
	*Scheduler
	key    queueKey
	queue  *queue
	config Config
	series Series
	left   []*waiter
	tries  int // errors so far
}

// place ends every waiter with its slot or an error, but those that are left for later windows
// than were searched.
func (s *Scheduler) place(ctx context.Context, key queueKey, q *queue, waiters []*waiter) (left []*waiter,
	searched *Search) {
	g := &group{Scheduler: s, key: key, queue: q, config: waiters[0].config, series: waiters[0].series, left: waiters}
	if g.config.Max == 0 {
		g.endAll(g.pausedUnlessPlaced(ctx))
		return nil, nil
	}
	for len(g.left) > 0 {
		searched, err := g.step(ctx)
		if searched != nil {
			return g.left, searched
		}
		if err != nil {
			g.endAll(err)
		}
	}
	return nil, nil
}

// pausedUnlessPlaced answers for those that have a slot from before the pause:
// a pause writes nothing.
func (g *group) pausedUnlessPlaced(ctx context.Context) error {
	ids := make([]string, len(g.left))
	for i, w := range g.left {
		ids[i] = w.ask.EventID
	}
	have, err := g.store.Find(ctx, ids)
	if err != nil {
		return err
	}
	found := Found{Answers: make([]Answer, len(ids))}
	for _, slot := range have {
		if i := slices.Index(ids, slot.EventID); i >= 0 {
			found.Answers[i] = Answer{Existing, slot}
		}
	}
	g.deliver(&found)
	return ErrPaused
}

// step does one search, which it returns, and deals with its outcome. Without a search and an
// error it is to be done again; an error ends all that are left.
func (g *group) step(ctx context.Context) (searched *Search, err error) {
	search := g.search()
	search.Held = g.queue.held
	generation := g.configs.known()
	epoch := g.windows.apply(search)
	began := g.settings.Now()
	found, err := g.engine.Assign(ctx, search)
	g.settings.Metrics.searched(len(search.Asks), found.Windows, found.Contended, g.settings.Now().Sub(began))
	g.deliver(&found)
	if len(found.Held) > 0 {
		g.queue.held, g.queue.heldAt = append(g.queue.held, found.Held...), g.settings.Now()
	}
	// Also what was seen before an error: a search that is too long for one caller ends with
	// the next.
	g.note(ctx, g.windows.learn(epoch, search, &found), generation)
	if err != nil {
		return nil, g.afterError(ctx, err)
	}
	return search, nil
}

// note writes down full windows. A hint that is not there costs time, which is no reason to
// fail, or to wait.
func (g *group) note(ctx context.Context, full []Span, generation int64) {
	if len(full) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWithin)
	defer cancel()
	for _, span := range full {
		_ = g.store.NoteFull(ctx, g.series, g.config.Max, span, generation)
	}
}

// search makes the search for those that are left.
func (g *group) search() *Search {
	s := &Search{
		Series: g.series, ConfigID: g.config.ID, Max: g.config.Max, Stratified: g.config.Options.Stratified,
		Asks: make([]Ask, len(g.left)),
	}
	later := g.left[0].later
	for i, w := range g.left {
		s.Asks[i] = w.ask
		s.Asks[i].FromMs, s.Asks[i].EndMs = w.later.FromMs, w.later.ToMs
		later = Span{min(later.FromMs, w.later.FromMs), max(later.ToMs, w.later.ToMs)}
	}
	switch {
	case g.key.later:
		s.FirstMs, s.FromMs, s.EndMs = math.MinInt64, later.FromMs, later.ToMs
		s.Mixed = len(g.left) > 1
	case g.settings.Procedure && len(g.left) == 1 && g.config.Options.Calendar == nil:
		s.FirstMs, s.FromMs, s.EndMs = g.key.ms, g.key.ms+s.SizeMs, g.left[0].reachMs
	default:
		s.FirstMs, s.FirstOnly = g.key.ms, true
	}
	return s
}

// deliver ends the waiters that have an answer.
func (g *group) deliver(f *Found) {
	waiters := g.left
	g.left = nil
	for i, w := range waiters {
		if i < len(f.Answers) && f.Answers[i].Status != Unplaced {
			w.end(f.Answers[i], nil)
		} else {
			g.left = append(g.left, w)
		}
	}
}

func (g *group) endAll(err error) {
	for _, w := range g.left {
		w.end(Answer{}, err)
	}
	g.left = nil
}

// afterError decides whether to try again. What an unclear transaction did shows
// when the events are looked for again.
func (g *group) afterError(ctx context.Context, err error) error {
	kind := KindOf(err)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	g.tries++
	if (kind != Passing && kind != Duplicate && kind != Held) || g.tries >= maxTries {
		return err
	}
	g.settings.Metrics.retried(kind)
	if kind == Duplicate && g.tries == 1 {
		// Another has given one of the events a slot; it is there now. That says
		// nothing about the others.
		return nil
	}
	return g.backOff(ctx, g.tries)
}

// backOff waits before the given try, with full jitter, so that those who got into each
// other's way do not meet again.
func (s *Scheduler) backOff(ctx context.Context, try int) error {
	most := min(backOffFirst<<min(try, 10), backOffMost)
	return background.Sleep(ctx, time.Duration(rand.Int64N(int64(most))))
}
