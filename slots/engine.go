package slots

import (
	"context"
	"math"
	"slices"
)

// TxEngine returns the engine that sends statements to t. It may be used from any
// goroutine.
func TxEngine(t Tables) Engine { return txEngine{t} }

// ProcedureEngine returns the engine that has the database place single events
// in one round trip. Several at once are placed by rest, whose transaction they share.
func ProcedureEngine(p Procedure, rest Engine) Engine { return procedureEngine{p, rest} }

type procedureEngine struct {
	procedure Procedure
	rest      Engine
}

func (e procedureEngine) Assign(ctx context.Context, s *Search) (Found, error) {
	if len(s.Asks) != 1 || s.FirstOnly || s.Mixed || len(s.Held) > 0 {
		return e.rest.Assign(ctx, s)
	}
	found, err := e.procedure.Call(ctx, s)
	if KindOf(err) == Held {
		return e.rest.Assign(ctx, s) // which passes over held windows
	}
	return found, err
}

type txEngine struct{ tables Tables }

func (e txEngine) Assign(ctx context.Context, s *Search) (Found, error) {
	r := &search{Search: s, tables: e.tables, found: Found{Answers: make([]Answer, len(s.Asks)), FirstCount: -1}}
	err := r.run(ctx)
	return r.found, err
}

// A search is one Search under way.
type search struct {
	*Search
	tables   Tables
	found    Found
	unplaced []int // asks without a slot, by index
	passed   bool  // a window was passed over: what is before it may have room
}

func (r *search) run(ctx context.Context) error {
	if err := r.find(ctx); err != nil || len(r.unplaced) == 0 {
		return err
	}
	if err := r.first(ctx); err != nil || len(r.unplaced) == 0 || r.FirstOnly {
		return err
	}
	return r.later(ctx)
}

// find answers for events that have a slot.
func (r *search) find(ctx context.Context) error {
	ids := make([]string, len(r.Asks))
	for i := range r.Asks {
		ids[i] = r.Asks[i].EventID
	}
	have, err := r.tables.Find(ctx, ids)
	if err != nil {
		return err
	}
	byEvent := make(map[string]Slot, len(have))
	for _, slot := range have {
		byEvent[slot.EventID] = slot
	}
	for i := range r.Asks {
		a := &r.Asks[i]
		slot, ok := byEvent[a.EventID]
		if !ok {
			r.unplaced = append(r.unplaced, i)
			continue
		}
		r.found.Answers[i] = Answer{Existing, slot}
		if slot.ID == a.SlotID {
			// An earlier try took effect although its answer was lost.
			r.found.Answers[i].Status = New
		}
	}
	return nil
}

// first looks at the window of the requested time itself, where each event has
// a capacity of its own.
func (r *search) first(ctx context.Context) error {
	room := int64(0)
	for _, i := range r.unplaced {
		room = max(room, r.Asks[i].FirstMax)
	}
	if room == 0 {
		return nil
	}
	c, err := r.claim(ctx, r.FirstMs, room)
	if err == nil && c.full && r.isGone(ctx, r.FirstMs) {
		c, err = r.claim(ctx, r.FirstMs, room)
	}
	switch {
	case err != nil:
		return err
	case c.full:
		r.found.FirstCount = room
	case !c.held:
		r.found.FirstCount = c.count
	}
	return nil
}

// isGone reports whether a window that seemed full has no row: a purge may drop the row of a
// past window after a claim has found it there and before it locks it.
func (r *search) isGone(ctx context.Context, windowMs int64) bool {
	_, there, err := r.tables.Peek(ctx, r.Series, windowMs)
	return err == nil && !there
}

// later places events into the windows after their first ones, the earliest with
// room first.
func (r *search) later(ctx context.Context) error {
	at, direct := r.next(r.EndMs, r.FromMs), r.Direct
	missed := int64(math.MinInt64) // the window that had room when it was scouted, and none when it was locked
	for len(r.unplaced) > 0 {
		window, ok := at, at < r.EndMs
		if ok && !direct {
			var err error
			if window, ok, err = r.tables.Scout(ctx, r.Series, at, r.EndMs, r.Max); err != nil {
				return err
			}
			r.full(at, window)
		}
		if !ok {
			r.found.Exhausted = true
			return nil
		}
		r.giveUp(window)
		if len(r.unplaced) == 0 {
			return nil
		}
		c, err := r.claim(ctx, window, r.Max)
		switch {
		case err != nil:
			return err
		case c.held:
			r.found.Contended++
			r.passed, direct = true, true
		case c.full && direct:
			// The scout shows how many more are.
			at, direct = window, false
			continue
		case c.full: // filled since it was scouted, or it has no row and full all the same
			r.found.Contended++
			if at, err = r.tables.Uncounted(ctx, r.Series, window, r.EndMs, r.Max); err != nil {
				return err
			}
			if at == window && missed == window { // twice: whatever the scout says, it is full
				at = window + r.SizeMs
			}
			r.full(window, at)
			at, direct, missed = r.next(r.EndMs, at), false, window
			continue
		default:
			if c.count >= r.Max {
				r.full(window, window+r.SizeMs)
			}
			direct = true
		}
		at = r.next(r.EndMs, window+r.SizeMs)
	}
	return nil
}

// next is where to go on: at the given instant, or where the first of the unplaced
// asks begins, if that is later.
func (r *search) next(end, from int64) int64 {
	first := end
	for _, i := range r.unplaced {
		first = min(first, r.from(&r.Asks[i]))
	}
	return max(first, from)
}

// giveUp leaves asks unplaced whose windows end before this one.
func (r *search) giveUp(window int64) {
	if r.Mixed {
		r.unplaced = slices.DeleteFunc(r.unplaced, func(i int) bool { return r.Asks[i].EndMs <= window })
	}
}

// full notes that the windows [fromMs, toMs) are full.
func (r *search) full(fromMs, toMs int64) {
	if r.passed || fromMs >= toMs {
		return
	}
	if n := len(r.found.Full); n > 0 && r.found.Full[n-1].ToMs == fromMs {
		r.found.Full[n-1].ToMs = toMs
		return
	}
	r.found.Full = append(r.found.Full, Span{fromMs, toMs})
}

// claimed is what became of a claim.
type claimed struct {
	count      int64 // of the window, with what was placed
	full, held bool
}

// claim places as many of the unplaced events into the window as it has room for: max
// in all, and in the first window each event's own capacity.
func (r *search) claim(ctx context.Context, window, max int64) (c claimed, err error) {
	if slices.Contains(r.Held, window) {
		return claimed{held: true}, nil
	}
	if c, err = r.tryClaim(ctx, window, max); c.held {
		r.found.Held = append(r.found.Held, window)
	}
	return c, err
}

func (r *search) tryClaim(ctx context.Context, window, max int64) (c claimed, err error) {
	r.found.Windows++
	if c, ok, err := r.place(ctx, window, max); ok || c.held || err != nil {
		return c, err
	}
	tx, err := r.tables.Begin(ctx, r.ConfigID)
	if err != nil {
		return c, err
	}
	defer tx.Rollback()
	count, ok, err := tx.Lock(ctx, r.Series, window, max)
	switch {
	case KindOf(err) == Held:
		return claimed{held: true}, nil
	case err != nil:
		return c, err
	case !ok:
		return claimed{full: true}, nil
	}
	taken, slots, left := r.take(window, count, max)
	if len(slots) == 0 {
		return claimed{count: count}, nil
	}
	if err := claimCommit(ctx, tx, r.Series, window, slots); err != nil {
		return c, err
	}
	for k, i := range taken {
		r.found.Answers[i] = Answer{New, slots[k]}
	}
	r.unplaced = left
	return claimed{count: count + int64(len(slots))}, nil
}

// place places all of the unplaced events into the window at once, if it has room for all. Where a
// time inside the window depends on the window's count, it does not: the count comes too late.
func (r *search) place(ctx context.Context, window, max int64) (c claimed, ok bool, err error) {
	if r.Stratified {
		return c, false, nil
	}
	slots := make([]Slot, len(r.unplaced))
	for k, i := range r.unplaced {
		a := &r.Asks[i]
		max = min(max, r.room(a, window, max))
		slots[k] = r.slot(a, window, 0)
	}
	count, ok, err := r.tables.Place(ctx, r.ConfigID, r.Series, window, max, slots)
	switch {
	case KindOf(err) == Held:
		return claimed{held: true}, false, nil
	case err != nil || !ok:
		return c, false, err
	}
	for k, i := range r.unplaced {
		r.found.Answers[i] = Answer{New, slots[k]}
	}
	r.unplaced = nil
	return claimed{count: count + int64(len(slots))}, true, nil
}

func claimCommit(ctx context.Context, tx Tx, s Series, window int64, slots []Slot) error {
	if both, ok := tx.(ClaimCommitter); ok {
		return both.ClaimCommit(ctx, s, window, slots)
	}
	if err := tx.Claim(ctx, s, window, slots); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// take chooses the events that a window with count events in it has room for.
func (r *search) take(window, count, max int64) (taken []int, slots []Slot, left []int) {
	for _, i := range r.unplaced {
		a := &r.Asks[i]
		if count >= r.room(a, window, max) {
			left = append(left, i)
			continue
		}
		taken = append(taken, i)
		slots = append(slots, r.slot(a, window, count))
		count++
	}
	return taken, slots, left
}

// room is how many events the window may have before this one, if max is its size.
func (r *search) room(a *Ask, window, max int64) int64 {
	switch {
	case r.Mixed && a.FromMs > window:
		return 0
	case !r.Mixed && window == r.FirstMs:
		return a.FirstMax
	}
	return max
}
