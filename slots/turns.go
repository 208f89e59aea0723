package slots

import (
	"context"
	"errors"
	"math"
)

// turnAfter is how many tries of an event a change of its config may send back to the start.
// Then the event is placed in one transaction that holds the active version, whichever it is.
const turnAfter = 3

// assignInTurn places those of the events that are to do one by one, each under the version that
// its transaction holds, and returns those that failed in passing. One caller of a process does
// so at a time: it needs a second connection while it holds the first.
func (s *Scheduler) assignInTurn(ctx context.Context, rs []Request, out []BatchResult, todo []int) (again []int) {
	select {
	case s.holding <- struct{}{}:
		defer func() { <-s.holding }()
	case <-ctx.Done():
		return todo
	}
	for _, i := range todo {
		a, err := s.placeInTurn(ctx, rs[i])
		out[i] = BatchResult{Result{a.Slot, a.Status == Existing}, err}
		switch KindOf(err) {
		case Passing, Duplicate, Held, Superseded:
			again = append(again, i)
		}
	}
	return again
}

// placeInTurn places one event.
func (s *Scheduler) placeInTurn(ctx context.Context, r Request) (Answer, error) {
	us, err := s.checkRequest(&r)
	if err != nil {
		return Answer{}, err
	}
	of, _ := s.shares.join(r.ConfigName) // it has waited before, and found a place then
	defer of.leave()
	of.begin()
	defer of.end()
	tx, config, err := s.store.BeginActive(ctx, r.ConfigName)
	if err != nil {
		return Answer{}, named(err, r.ConfigName)
	}
	defer tx.Rollback()
	w, err := s.newWaiter(ctx, r, us, config)
	if err != nil {
		return Answer{}, err
	}
	if config.Max == 0 {
		have, err := s.store.Find(ctx, []string{r.EventID})
		if err != nil || len(have) == 0 {
			return Answer{}, errors.Join(err, ErrPaused)
		}
		return Answer{Existing, have[0]}, nil
	}
	began := s.settings.Now()
	found, err := searchInTurn(ctx, TxEngine(&heldTables{Tables: s.store, tx: tx}), w)
	if err == errBeyond {
		tx.Rollback() // the look needs no lock
		err = s.beyondReach(ctx, w, new(Span))
	}
	s.settings.Metrics.searched(1, found.Windows, found.Contended, s.settings.Now().Sub(began))
	if err != nil || found.Answers[0].Status == Unplaced {
		return Answer{}, err
	}
	return found.Answers[0], nil
}

// errBeyond: the windows that the event may have are full.
var errBeyond = errors.New("no window in reach of the event has room")

// searchInTurn looks at the waiter's first window and then at all later ones that are open.
func searchInTurn(ctx context.Context, e Engine, w *waiter) (Found, error) {
	s := &Search{
		Series: w.series, ConfigID: w.config.ID, Max: w.config.Max, Stratified: w.config.Options.Stratified,
		FirstMs: w.firstMs, FirstOnly: true, Asks: []Ask{w.ask},
	}
	all, err := e.Assign(ctx, s)
	for at := w.firstMs + w.config.SizeMs; err == nil && all.Answers[0].Status == Unplaced; at = s.EndMs {
		from, to, open := w.config.Options.Calendar.Span(at, w.config.SizeMs)
		switch {
		case open && from >= w.reachMs && w.reachMs < lastMs:
			return all, errBeyond
		case !open || from >= lastMs:
			return all, ErrExhausted
		}
		s.FirstMs, s.FirstOnly, s.Asks[0].FirstMax = math.MinInt64, false, 0
		s.FromMs, s.EndMs = from, min(to, w.reachMs)
		var found Found
		found, err = e.Assign(ctx, s)
		all.Answers = found.Answers
		all.Windows, all.Contended = all.Windows+found.Windows, all.Contended+found.Contended
	}
	return all, err
}

// heldTables has all claims made in one transaction, until the first that succeeds or fails.
type heldTables struct {
	Tables
	tx   Tx
	over bool
}

// Place leaves all to the transaction.
func (h *heldTables) Place(context.Context, string, Series, int64, int64, []Slot) (int64, bool, error) {
	return 0, false, nil
}

func (h *heldTables) Begin(context.Context, string) (Tx, error) {
	if h.over {
		return nil, &StoreError{Passing, "lock a window",
			errors.New("the transaction that holds the version of the config has ended")}
	}
	return heldTx{h}, nil
}

// heldTx is the transaction of heldTables, which goes on after a Rollback: nothing was claimed.
type heldTx struct{ h *heldTables }

func (t heldTx) Lock(ctx context.Context, s Series, windowMs, max int64) (count int64, ok bool, err error) {
	count, ok, err = t.h.tx.Lock(ctx, s, windowMs, max)
	t.h.over = t.h.over || err != nil
	return count, ok, err
}

func (t heldTx) Claim(ctx context.Context, s Series, windowMs int64, slots []Slot) error {
	t.h.over = true
	return t.h.tx.Claim(ctx, s, windowMs, slots)
}

func (t heldTx) Commit(ctx context.Context) error { return t.h.tx.Commit(ctx) }

func (t heldTx) Rollback() {}
