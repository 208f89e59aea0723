package slots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
)

// TxEngine returns the engine that sends statements to t. It may be used from any
// goroutine. Its own claims do not get into each other's way: a window that one
// of them is after counts as held for the others, without asking the database;
// with Search.Wait they take turns.
func TxEngine(t Tables) Engine {
	return &txEngine{tables: t, claims: newClaims(1)}
}

// ProcedureEngine returns the engine that has the database place single events
// in one round trip. Several at once are placed by rest, whose transaction they share.
// With Search.Wait, those of this process that want the same first window take
// turns.
func ProcedureEngine(p Procedure, rest Engine) Engine {
	return procedureEngine{p, rest, newClaims(callsInTurn)}
}

// callsInTurn is how many calls of one process may be after the same window when
// they wait for it: some databases let the next one in while a commit is on its
// way to the disk.
const callsInTurn = 3

type procedureEngine struct {
	procedure Procedure
	rest      Engine
	claims    *claims
}

func (e procedureEngine) Assign(ctx context.Context, s *Search) (Found, error) {
	if len(s.Asks) != 1 {
		return e.rest.Assign(ctx, s)
	}
	if s.Wait {
		key := WindowKey{s.Series, s.FirstMs}
		if !e.claims.take(ctx, key, s.waitUntil()) {
			found := s.nothing()
			found.Held = true
			return found, ctx.Err()
		}
		defer e.claims.release(key)
	}
	return e.procedure.Call(ctx, s)
}

type txEngine struct {
	tables Tables
	claims *claims
	// Callers of this process who miss the same windows have them made once.
	provision singleflight.Group
}

func (e *txEngine) Assign(ctx context.Context, s *Search) (Found, error) {
	r := &search{Search: s, engine: e, found: s.nothing()}
	err := r.run(ctx)
	return r.found, err
}

// A search is one Search under way.
type search struct {
	*Search
	engine  *txEngine
	found   Found
	pending []int // asks without a slot, by index

	passed  int64 // the earliest window that was passed over, if passing is set
	passing bool
	retried bool // the windows passed over were tried again
}

func (r *search) run(ctx context.Context) error {
	if err := r.find(ctx); err != nil || len(r.pending) == 0 {
		return err
	}
	if err := r.first(ctx); err != nil || r.done() {
		return err
	}
	return r.later(ctx)
}

// done tells whether there is nothing more to do.
func (r *search) done() bool { return len(r.pending) == 0 || r.found.Held }

// find answers for events that have a slot (S0-54).
func (r *search) find(ctx context.Context) error {
	ids := make([]string, len(r.Asks))
	for i := range r.Asks {
		ids[i] = r.Asks[i].EventID
	}
	have, err := r.engine.tables.Find(ctx, ids)
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
			r.pending = append(r.pending, i)
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
// a capacity of its own (S0-46).
func (r *search) first(ctx context.Context) error {
	room := int64(0)
	for _, i := range r.pending {
		room = max(room, r.Asks[i].FirstMax)
	}
	if room == 0 {
		return nil // S0-47
	}
	// A row that was known to exist may have been purged since.
	for try, known := 0, r.FirstKnown; ; try, known = try+1, false {
		if !known {
			if err := r.makeRows(ctx, r.FirstMs, r.FirstMs+r.SizeMs, nil); err != nil {
				return err
			}
		}
		count, ok, err := r.claim(ctx, r.FirstMs, room)
		if ok || err != nil {
			r.found.FirstCount = count
			return err
		}
		count, exists, err := r.engine.tables.Peek(ctx, r.Series, r.FirstMs)
		switch {
		case err != nil:
			return err
		case exists && count >= room: // full
			r.found.FirstCount = count
			return nil
		case exists: // held by another
			r.found.FirstCount = count
			r.found.Contended++
			r.found.Held = r.Wait
			return nil
		case try > 0:
			return &StoreError{Passing, "provision the first window", errors.New("its row is gone again")}
		}
	}
}

// later looks at the windows after the first one, and provisions more of them
// as far as the search may reach.
func (r *search) later(ctx context.Context) error {
	end := r.FrontierMs
	if end == 0 {
		var err error
		var ok bool
		if end, ok, err = r.engine.tables.Frontier(ctx, r.Series, r.GridMs()); err != nil {
			return err
		}
		if !ok {
			end = r.GridMs() // which may be before 1970
		}
	}
	r.found.FrontierMs = end
	limit := r.LimitMs(end)
	from := r.FromMs
	for {
		var err error
		if from, err = r.scan(ctx, from, min(end, limit)); err != nil || r.done() {
			return err
		}
		switch {
		case r.passing && !r.retried:
			// Whoever held them may be done (F4).
			from, r.passing, r.retried = r.passed, false, true
			continue
		case end >= limit:
			r.found.Exhausted = true
			return nil
		}
		if end, err = r.extend(ctx, end); err != nil {
			return err
		}
		r.found.FrontierMs = end
	}
}

// extend provisions the chunk at end, or the one of BaseMs if there is none yet,
// and returns the new end.
func (r *search) extend(ctx context.Context, end int64) (int64, error) {
	from := max(end, r.GridMs())
	end = from + r.chunkMs()
	err := r.makeRows(ctx, from, end, &Frontier{ChunkMs: r.GridMs(), EndMs: end})
	return end, err
}

// makeRows provisions windows, in a transaction of its own (F6).
func (r *search) makeRows(ctx context.Context, fromMs, toMs int64, f *Frontier) error {
	key := fmt.Sprintf("%d %d %d %s", r.SizeMs, fromMs, toMs, r.Scope)
	if f != nil {
		key = fmt.Sprintf("%d %s", f.ChunkMs, key)
	}
	res := together(ctx, &r.engine.provision, key, provisionWithin, func(ctx context.Context) (any, error) {
		return r.engine.tables.Provision(ctx, r.Series, fromMs, toMs, f)
	})
	if rows, ok := res.Val.(int64); ok && !res.Shared {
		r.found.Provisioned += rows
	}
	return res.Err
}

// provisionWithin bounds the making of a chunk.
const provisionWithin = 10 * time.Second

// scan places events into the windows [from, end), the earliest with room first,
// and returns where it got to.
func (r *search) scan(ctx context.Context, from, end int64) (int64, error) {
	// A window is tried without a look at it where it should have room: the caller
	// knows, or others of this process are claiming the one before it.
	direct := r.Direct && from == r.FromMs && from < end && !r.retried
	for from < end && !r.done() {
		if !r.Wait && r.engine.claims.has(WindowKey{r.Series, from}) {
			r.passOver(from)
			from, direct = from+r.SizeMs, true
			continue
		}
		window, ok := from, true
		if !direct {
			var err error
			if window, ok, err = r.engine.tables.Scout(ctx, r.Series, from, end, r.Max); err != nil {
				return from, err
			}
			if !ok {
				window = end
			}
			r.low(window)
		}
		if !ok {
			return end, nil
		}
		count, ok, err := r.claim(ctx, window, r.Max)
		switch {
		case err != nil:
			return from, err
		case !ok && direct:
			// Full by now, or held: the scout tells.
		case !ok:
			r.passOver(window)
			from = window + r.SizeMs
		case count >= r.Max:
			r.low(window + r.SizeMs)
			from = window + r.SizeMs
		}
		direct = false
	}
	return from, nil
}

// low notes that all windows before ms are full, unless one was passed over.
func (r *search) low(ms int64) {
	if !r.passing && !r.retried {
		r.found.LowMs = max(r.found.LowMs, ms)
	}
}

// passOver notes that a window was held by another, or filled since it was
// scouted.
func (r *search) passOver(window int64) {
	r.found.Contended++
	r.found.Held = r.Wait
	if !r.passing {
		r.passing, r.passed = true, window
	}
}

// claim places as many pending events into the window as it has room for: max
// in all, and in the first window each event's own capacity. It returns the count
// as it is then; ok=false if it could not lock the window.
func (r *search) claim(ctx context.Context, window, max int64) (count int64, ok bool, err error) {
	key := WindowKey{r.Series, window}
	if !r.engine.claims.take(ctx, key, r.waitUntil()) {
		return -1, false, nil
	}
	defer r.engine.claims.release(key)
	r.found.Windows++
	tx, err := r.engine.tables.Begin(ctx)
	if err != nil {
		return -1, false, err
	}
	defer tx.Rollback()
	count, ok, err = tx.Lock(ctx, r.Series, window, max)
	if !ok || err != nil {
		return -1, false, err
	}
	taken, slots, left := r.take(window, count, max)
	if len(slots) == 0 {
		return count, true, nil
	}
	if err := claimCommit(ctx, tx, r.Series, window, slots); err != nil {
		return -1, false, err
	}
	for k, i := range taken {
		r.found.Answers[i] = Answer{New, slots[k]}
	}
	r.pending = left
	return count + int64(len(slots)), true, nil
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
	for _, i := range r.pending {
		a := &r.Asks[i]
		room := max
		if window == r.FirstMs {
			room = a.FirstMax
		}
		if count >= room {
			left = append(left, i)
			continue
		}
		taken = append(taken, i)
		slots = append(slots, r.slot(a, window, count))
		count++
	}
	return taken, slots, left
}
