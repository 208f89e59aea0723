package slotstest

import (
	"context"
	"slices"
	"testing"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/random"
)

// TestFlawsAreFound breaks engines and databases on purpose: a suite that finds
// nothing wrong with them is worth nothing.
func TestFlawsAreFound(t *testing.T) {
	flawed := map[string]subject{}
	for _, flaw := range []string{
		"a retry assigns again",
		"the first window has its full capacity",
		"the search ends a window early",
		"advances past a second scout's window",
		"a transaction is left open",
		"the jitter ignores what is over of the window",
		"answers before it commits",
		"a lost commit is a success",
	} {
		flawed[flaw] = subject{engine: func(t slots.Tables) slots.Engine { return &plainEngine{t, flaw} }}
	}
	for flaw, broken := range brokenStores() {
		if broken.provision != nil {
			continue // searches next to never do; the suite of stores finds it
		}
		flawed[flaw] = subject{engine: slots.TxEngine, tables: func(m *Model) slots.Tables {
			return &brokenStore{Model: m, flaws: broken}
		}}
	}
	for flaw, sub := range flawed {
		t.Run(flaw, func(t *testing.T) {
			seed, wrong := hunt(sub, 3000)
			if wrong == "" {
				t.Fatal("nothing wrong was found")
			}
			t.Logf("seed %d: %.300s", seed, wrong)
		})
	}
}

// hunt plays scenarios until something is wrong.
func hunt(sub subject, seeds uint64) (seed uint64, wrong string) {
	for seed := range seeds {
		if all := property(seed, sub); len(all) > 0 {
			return seed, all[0]
		}
		if all := alone(seed, sub, 2026); len(all) > 0 {
			return seed, all[0]
		}
	}
	return 0, ""
}

// TestPlainEngine: the engine that is broken above is right otherwise.
func TestPlainEngine(t *testing.T) {
	sub := subject{engine: func(t slots.Tables) slots.Engine { return &plainEngine{t: t} }}
	for seed := range random.Seeds(t, seeds()/4) {
		if wrong := append(property(seed, sub), alone(seed, sub, 2026)...); len(wrong) > 0 {
			t.Fatalf("seed %d: %d problems, such as: %s", seed, len(wrong), wrong[0])
		}
	}
}

// storeFlaws are what is done instead of the right thing; nil: the right thing.
type storeFlaws struct {
	find      func(m *Model, ctx context.Context, ids []string) ([]slots.Slot, error)
	scout     func(m *Model, ctx context.Context, s slots.Series, from, to, max int64) (int64, bool, error)
	provision func(m *Model, ctx context.Context, s slots.Series, from, to int64, f *slots.Frontier) (int64, error)
	lock      func(tx *modelTx, ctx context.Context, s slots.Series, at, max int64) (int64, bool, error)
	claim     func(tx *modelTx, ctx context.Context, s slots.Series, at int64, list []slots.Slot) error
	commit    func(tx *modelTx, ctx context.Context) error
	rollback  func(tx *modelTx)
}

func brokenStores() map[string]storeFlaws {
	return map[string]storeFlaws{
		"Claim forgets the count": {claim: func(tx *modelTx, ctx context.Context, s slots.Series, at int64,
			list []slots.Slot) error {
			err := tx.Claim(ctx, s, at, list)
			clear(tx.added)
			return err
		}},
		"Claim counts one, whatever the batch": {claim: func(tx *modelTx, ctx context.Context, s slots.Series, at int64,
			list []slots.Slot) error {
			err := tx.Claim(ctx, s, at, list)
			for w := range tx.added {
				tx.added[w] = 1
			}
			return err
		}},
		"Lock tells a count that is too low": {lock: func(tx *modelTx, ctx context.Context, s slots.Series, at,
			max int64) (int64, bool, error) {
			count, ok, err := tx.Lock(ctx, s, at, max+1)
			return count - 1, ok, err
		}},
		"Lock passes through others' locks": {lock: func(tx *modelTx, ctx context.Context, s slots.Series, at,
			max int64) (int64, bool, error) {
			if w := tx.m.windows[slots.WindowKey{Series: s, StartMs: at}]; w != nil && w.holder != tx {
				w.holder = nil
			}
			return tx.Lock(ctx, s, at, max)
		}},
		"Rollback keeps the slots": {rollback: func(tx *modelTx) {
			if !tx.ended {
				tx.added = nil
				tx.commit()
			}
		}},
		"Rollback keeps the lock": {rollback: func(tx *modelTx) {
			held := slices.Clone(tx.held)
			tx.Rollback()
			for _, w := range held {
				w.holder = tx
			}
		}},
		"Commit forgets the slots": {commit: func(tx *modelTx, ctx context.Context) error {
			for _, id := range tx.inserted {
				delete(tx.m.events, id)
			}
			tx.inserted = nil
			return tx.Commit(ctx)
		}},
		"Find misses the last": {find: func(m *Model, ctx context.Context, ids []string) ([]slots.Slot, error) {
			found, err := m.Find(ctx, ids)
			return found[:max(0, len(found)-1)], err
		}},
		"Find sees what is not committed": {find: func(m *Model, ctx context.Context, ids []string) ([]slots.Slot, error) {
			found, err := m.Find(ctx, ids)
			for _, id := range ids {
				if e := m.events[id]; e != nil && e.owner != nil && err == nil {
					found = append(found, e.Slot)
				}
			}
			return found, err
		}},
		"Scout does not find the first": {scout: func(m *Model, ctx context.Context, s slots.Series, from, to,
			max int64) (int64, bool, error) {
			return m.Scout(ctx, s, from+s.SizeMs, to, max)
		}},
		"Scout finds full windows": {scout: func(m *Model, ctx context.Context, s slots.Series, from, to,
			max int64) (int64, bool, error) {
			return m.Scout(ctx, s, from, to, max+1)
		}},
		"Provision makes one row less": {provision: func(m *Model, ctx context.Context, s slots.Series, from, to int64,
			f *slots.Frontier) (int64, error) {
			if to-from > s.SizeMs {
				to -= s.SizeMs
			}
			return m.Provision(ctx, s, from, to, f)
		}},
		"Provision resets counters": {provision: func(m *Model, ctx context.Context, s slots.Series, from, to int64,
			f *slots.Frontier) (int64, error) {
			n, err := m.Provision(ctx, s, from, to, f)
			for key, w := range m.windows {
				if key.StartMs >= from && key.StartMs < to {
					w.count = 0
				}
			}
			return n, err
		}},
	}
}

// brokenStore does some things wrong.
type brokenStore struct {
	*Model
	flaws storeFlaws
}

func (b *brokenStore) Find(ctx context.Context, ids []string) ([]slots.Slot, error) {
	if b.flaws.find != nil {
		return b.flaws.find(b.Model, ctx, ids)
	}
	return b.Model.Find(ctx, ids)
}

func (b *brokenStore) Scout(ctx context.Context, s slots.Series, from, to, max int64) (int64, bool, error) {
	if b.flaws.scout != nil {
		return b.flaws.scout(b.Model, ctx, s, from, to, max)
	}
	return b.Model.Scout(ctx, s, from, to, max)
}

func (b *brokenStore) Provision(ctx context.Context, s slots.Series, from, to int64, f *slots.Frontier) (int64, error) {
	if b.flaws.provision != nil {
		return b.flaws.provision(b.Model, ctx, s, from, to, f)
	}
	return b.Model.Provision(ctx, s, from, to, f)
}

// Place leaves all to the transaction, which has the flaws.
func (b *brokenStore) Place(context.Context, string, slots.Series, int64, int64, []slots.Slot) (int64, bool, error) {
	return 0, false, nil
}

func (b *brokenStore) Begin(ctx context.Context, configID string) (slots.Tx, error) {
	tx, err := b.Model.Begin(ctx, configID)
	if err != nil {
		return nil, err
	}
	return &brokenTx{tx.(*modelTx), &b.flaws}, nil
}

type brokenTx struct {
	*modelTx
	flaws *storeFlaws
}

func (b *brokenTx) Lock(ctx context.Context, s slots.Series, at, max int64) (int64, bool, error) {
	if b.flaws.lock != nil {
		return b.flaws.lock(b.modelTx, ctx, s, at, max)
	}
	return b.modelTx.Lock(ctx, s, at, max)
}

func (b *brokenTx) Claim(ctx context.Context, s slots.Series, at int64, list []slots.Slot) error {
	if b.flaws.claim != nil {
		return b.flaws.claim(b.modelTx, ctx, s, at, list)
	}
	return b.modelTx.Claim(ctx, s, at, list)
}

func (b *brokenTx) Commit(ctx context.Context) error {
	if b.flaws.commit != nil {
		return b.flaws.commit(b.modelTx, ctx)
	}
	return b.modelTx.Commit(ctx)
}

func (b *brokenTx) Rollback() {
	if b.flaws.rollback != nil {
		b.flaws.rollback(b.modelTx)
		return
	}
	b.modelTx.Rollback()
}
