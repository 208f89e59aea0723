package slotstest

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// modelTx is a transaction of a Model. What it changed is visible to others
// once it is committed.
type modelTx struct {
	m        *Model
	caller   *caller
	configID string
	waitsFor *modelTx
	held     []*modelWindow
	made     []slots.WindowKey
	added    map[*modelWindow]int64
	inserted []string // event ids
	ended    bool
	zombie   bool // the client has lost it, the server not yet
}

// Begin implements slots.Tables.
func (m *Model) Begin(ctx context.Context, configID string) (slots.Tx, error) {
	if err := m.write(ctx, "begin"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	tx := &modelTx{m: m, caller: callerOf(ctx), configID: configID, added: map[*modelWindow]int64{}}
	if tx.caller != nil {
		tx.caller.open = tx
	}
	if m.Serial {
		m.writer = tx
	}
	m.open[tx] = struct{}{}
	return tx, nil
}

// Place implements slots.Tables. Every other time it cannot.
func (m *Model) Place(ctx context.Context, configID string, s slots.Series, windowMs, max int64,
	list []slots.Slot) (int64, bool, error) {
	m.mu.Lock()
	w := m.windows[slots.WindowKey{Series: s, StartMs: windowMs}]
	can := w != nil && w.maker == nil && m.rng.IntN(2) == 0
	m.mu.Unlock()
	if !can {
		return 0, false, nil
	}
	tx, err := m.Begin(ctx, configID)
	if err != nil {
		return 0, false, err
	}
	defer tx.Rollback()
	n := int64(len(list))
	count, ok, err := tx.Lock(ctx, s, windowMs, max-n+1)
	switch {
	case slots.KindOf(err) == slots.Superseded:
		return 0, false, nil
	case !ok || err != nil:
		return 0, false, err
	}
	if err := tx.Claim(ctx, s, windowMs, list); err != nil {
		return 0, false, err
	}
	return count, true, tx.Commit(ctx)
}

// BeginActive implements slots.Tables.
func (m *Model) BeginActive(ctx context.Context, name string) (slots.Tx, slots.Config, error) {
	begun, err := m.Begin(ctx, "")
	if err != nil {
		return nil, slots.Config{}, err
	}
	tx := begun.(*modelTx)
	m.mu.Lock()
	for _, c := range m.configs {
		if c.Active && c.Name == name {
			tx.configID = c.ID
			m.mu.Unlock()
			return tx, c, nil
		}
	}
	m.mu.Unlock()
	tx.Rollback()
	return nil, slots.Config{}, slots.ErrConfigNotFound
}

// enter begins a statement of the transaction, which a fault may end.
func (tx *modelTx) enter(ctx context.Context, op string) error {
	if err := tx.m.enter(ctx, op); err != nil {
		return err
	}
	if tx.ended {
		tx.m.misuse = append(tx.m.misuse, op+" in a transaction that has ended")
		tx.m.mu.Unlock()
		return failed(op, "the transaction has ended")
	}
	if tx.m.chance(tx.m.faults.Abort) {
		tx.lose(false)
		tx.m.mu.Unlock()
		return passing(op, errInjected)
	}
	return nil
}

// Lock implements slots.Tx.
func (tx *modelTx) Lock(ctx context.Context, s slots.Series, windowMs, max int64) (int64, bool, error) {
	if err := tx.enter(ctx, "lock"); err != nil {
		return 0, false, err
	}
	defer tx.m.mu.Unlock()
	if tx.m.superseded(tx.configID) {
		return 0, false, &slots.StoreError{Kind: slots.Superseded, Op: "lock",
			Err: fmt.Errorf("config %q is not active", tx.configID)}
	}
	key := slots.WindowKey{Series: s, StartMs: windowMs}
	for {
		w := tx.m.windows[key]
		switch {
		case w == nil:
			w = &modelWindow{count: tx.m.inside(s.Scope, windowMs, windowMs+s.SizeMs), madeUs: tx.m.clockUs, maker: tx,
				held: tx.m.gone[key]}
			if w.held == nil {
				w.held = map[*caller]int64{}
			}
			tx.m.windows[key] = w
			tx.made = append(tx.made, key)
			tx.hold(w)
		case w.holder != nil && w.holder != tx:
			if w.holder.ended || tx.m.chance(tx.m.faults.Held) {
				return 0, false, &slots.StoreError{Kind: slots.Held, Op: "lock", Err: errHeld}
			}
			if err := tx.waitForWindow(ctx, w.holder); err != nil {
				return 0, false, err
			}
			continue
		}
		if w.count+tx.added[w] >= max {
			return 0, false, nil
		}
		tx.hold(w)
		return w.count + tx.added[w], true, nil
	}
}

// modelWait bounds the wait for a window, where no Schedule decides.
const modelWait = 100 * time.Millisecond

func (tx *modelTx) waitForWindow(ctx context.Context, holder *modelTx) error {
	if callerOf(ctx) != nil {
		return tx.waitFor(ctx, holder)
	}
	bounded, cancel := context.WithTimeout(ctx, modelWait)
	defer cancel()
	err := tx.waitFor(bounded, holder)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return &slots.StoreError{Kind: slots.Held, Op: "lock", Err: errHeld}
	}
	return err
}

func (tx *modelTx) hold(w *modelWindow) {
	if w.holder == nil {
		w.holder = tx
		tx.held = append(tx.held, w)
		w.held[tx.caller] = tx.m.step
	}
}

// superseded reports whether another version of a config is active.
func (m *Model) superseded(configID string) bool {
	for _, c := range m.configs {
		if c.ID == configID {
			return !c.Active
		}
	}
	return false
}

// Claim implements slots.Tx. It is two statements, between which others may do
// theirs.
func (tx *modelTx) Claim(ctx context.Context, s slots.Series, windowMs int64, list []slots.Slot) error {
	if err := tx.enter(ctx, "claim"); err != nil {
		return err
	}
	w := tx.m.windows[slots.WindowKey{Series: s, StartMs: windowMs}]
	if w == nil || w.holder != tx {
		tx.m.misuse = append(tx.m.misuse, "a window was claimed that was not locked")
		tx.m.mu.Unlock()
		return failed("claim", "window %d is not locked", windowMs)
	}
	for _, slot := range list {
		if err := tx.insert(ctx, s, windowMs, slot); err != nil {
			tx.m.mu.Unlock()
			return err
		}
	}
	tx.m.mu.Unlock()
	if err := tx.enter(ctx, "count"); err != nil {
		return err
	}
	defer tx.m.mu.Unlock()
	tx.added[w] += int64(len(list))
	return nil
}

func (tx *modelTx) insert(ctx context.Context, s slots.Series, windowMs int64, slot slots.Slot) error {
	m := tx.m
	for {
		e := m.events[slot.EventID]
		if e == nil {
			break
		}
		if e.owner == nil || e.owner == tx {
			return &slots.StoreError{Kind: slots.Duplicate, Op: "claim", Err: fmt.Errorf("event %q has a slot", slot.EventID)}
		}
		if err := tx.waitFor(ctx, e.owner); err != nil {
			return err
		}
	}
	if event, taken := m.slotIDs[slot.ID]; taken {
		return &slots.StoreError{Kind: slots.Passing, Op: "claim", Err: fmt.Errorf("slot id %q is that of event %q",
			slot.ID, event)}
	}
	slot.CreatedUs, slot.Series, slot.WindowMs = m.clockUs, s, windowMs
	m.events[slot.EventID] = &modelSlot{Slot: slot, owner: tx}
	m.slotIDs[slot.ID] = slot.EventID
	tx.inserted = append(tx.inserted, slot.EventID)
	return nil
}

// waitFor waits for the end of another transaction. A circle of waiting ends
// with the death of the one who closes it.
func (tx *modelTx) waitFor(ctx context.Context, other *modelTx) error {
	for o := other; o != nil; o = o.waitsFor {
		if o == tx {
			tx.rollback()
			return passing("claim", errDeadlock)
		}
	}
	tx.waitsFor = other
	err := tx.m.await(ctx, func() bool { return other.ended })
	tx.waitsFor = nil
	return err
}

// Commit implements slots.Tx.
func (tx *modelTx) Commit(ctx context.Context) error {
	if err := tx.enter(ctx, "commit"); err != nil {
		return err
	}
	defer tx.m.mu.Unlock()
	if !tx.m.chance(tx.m.faults.LostCommit) {
		tx.commit()
		return nil
	}
	if tx.m.rng.IntN(2) == 0 {
		tx.commit()
	} else {
		tx.lose(tx.m.rng.IntN(2) == 0)
	}
	return passing("commit", errLostCommit)
}

// Rollback implements slots.Tx.
func (tx *modelTx) Rollback() {
	if c := tx.caller; c != nil && !tx.ended && !tx.zombie {
		c.pause(nil)
	}
	tx.m.mu.Lock()
	defer tx.m.mu.Unlock()
	tx.m.counts["rollback"]++
	if !tx.zombie {
		tx.rollback()
	}
}

// lose leaves the transaction to the server, which notices after a while.
func (tx *modelTx) lose(commit bool) {
	end := tx.rollback
	if commit {
		end = tx.commit
	}
	c := tx.caller
	if c == nil || tx.m.rng.IntN(2) == 0 {
		end()
		return
	}
	tx.forget()
	tx.zombie, tx.caller = true, nil
	tx.m.touch(tx)
	c.schedule.later = append(c.schedule.later, func() {
		tx.m.mu.Lock()
		defer tx.m.mu.Unlock()
		end()
	})
}

func (tx *modelTx) forget() {
	if tx.caller != nil && tx.caller.open == tx {
		tx.caller.open = nil
	}
}

func (tx *modelTx) commit() {
	if tx.ended {
		return
	}
	for w, n := range tx.added {
		w.count += n
	}
	for _, id := range tx.inserted {
		tx.m.events[id].owner = nil
	}
	for _, key := range tx.made {
		tx.m.windows[key].maker = nil
	}
	tx.end()
}

func (tx *modelTx) rollback() {
	if tx.ended {
		return
	}
	for _, id := range tx.inserted {
		delete(tx.m.slotIDs, tx.m.events[id].ID)
		delete(tx.m.events, id)
	}
	tx.end()
	for _, key := range tx.made {
		tx.m.gone[key] = tx.m.windows[key].held
		delete(tx.m.windows, key)
	}
}

func (tx *modelTx) end() {
	tx.m.touch(tx)
	for _, w := range tx.held {
		w.holder = nil
	}
	tx.ended = true
	tx.forget()
	delete(tx.m.open, tx)
	if tx.m.writer == tx {
		tx.m.writer = nil
	}
	tx.m.changed.Broadcast()
}

// touch notes that the transaction holds its windows now.
func (m *Model) touch(tx *modelTx) {
	for _, w := range tx.held {
		w.held[tx.caller] = m.step
	}
}
