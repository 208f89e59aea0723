package slotstest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// envFlaw names the flaw of the store that TestFlawedStore is to run on.
const envFlaw = "HEADGATE_SLOTS_FLAW"

// suiteFlaws are those of stores that the suite for real stores must find,
// beside some of brokenStores.
func suiteFlaws() map[string]func(*Model) slots.Store {
	all := map[string]func(*Model) slots.Store{
		"A full window stays locked after the transaction": func(m *Model) slots.Store {
			return &brokenStore{Model: m, flaws: storeFlaws{lock: lockFull}}
		},
		"Provision does not seed": func(m *Model) slots.Store {
			return &brokenStore{Model: m, flaws: storeFlaws{provision: provisionEmpty}}
		},
		"PutConfig leaves two active":     func(m *Model) slots.Store { return &badUpkeep{Model: m, flaw: "config"} },
		"Everybody leads":                 func(m *Model) slots.Store { return &badUpkeep{Model: m, flaw: "lead"} },
		"SlotsSince skips one":            func(m *Model) slots.Store { return &badUpkeep{Model: m, flaw: "since"} },
		"Drift does not repair":           func(m *Model) slots.Store { return &badUpkeep{Model: m, flaw: "drift"} },
		"PurgeWindows takes one too many": func(m *Model) slots.Store { return &badUpkeep{Model: m, flaw: "purge"} },
		"Flush changes nothing":           func(m *Model) slots.Store { return &badUpkeep{Model: m, flaw: "flush"} },
		"Frontier tells the end of another size": func(m *Model) slots.Store {
			return &badUpkeep{Model: m, flaw: "frontier"}
		},
	}
	for flaw, broken := range brokenStores() {
		all[flaw] = func(m *Model) slots.Store { return &brokenStore{Model: m, flaws: broken} }
	}
	return all
}

func lockFull(tx *modelTx, ctx context.Context, s slots.Series, at, limit int64) (int64, bool, error) {
	w := tx.m.windows[slots.WindowKey{Series: s, StartMs: at}]
	if w != nil && w.holder == nil && w.count >= limit {
		w.holder = tx // which its end does not take back
	}
	return tx.Lock(ctx, s, at, limit)
}

func provisionEmpty(m *Model, ctx context.Context, s slots.Series, from, to int64, f *slots.Frontier) (int64, error) {
	m.mu.Lock()
	there := map[slots.WindowKey]bool{}
	for key := range m.windows {
		there[key] = true
	}
	m.mu.Unlock()
	n, err := m.Provision(ctx, s, from, to, f)
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, w := range m.windows {
		if !there[key] && w.holder == nil {
			w.count = 0
		}
	}
	return n, err
}

// badUpkeep does one thing wrong.
type badUpkeep struct {
	*Model
	flaw string
}

func (b *badUpkeep) PutConfig(ctx context.Context, c slots.Config,
	seriesOf func(slots.Config) slots.Series) (slots.Config, error) {
	put, err := b.Model.PutConfig(ctx, c, seriesOf)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.configs {
		b.configs[i].Active = b.configs[i].Active || b.flaw == "config"
	}
	return put, err
}

func (b *badUpkeep) Lead(ctx context.Context, work, holder string, ttl time.Duration) (bool, error) {
	ok, err := b.Model.Lead(ctx, work, holder, ttl)
	return ok || b.flaw == "lead", err
}

func (b *badUpkeep) SlotsSince(ctx context.Context, after slots.Position, limit int) ([]slots.Slot, error) {
	page, err := b.Model.SlotsSince(ctx, after, limit)
	if b.flaw == "since" && len(page) > 2 {
		page = append(page[:1], page[2:]...)
	}
	return page, err
}

func (b *badUpkeep) Drift(ctx context.Context, from, to int64, after *slots.WindowKey, limit int,
	repair bool) ([]slots.Drift, *slots.WindowKey, error) {
	return b.Model.Drift(ctx, from, to, after, limit, repair && b.flaw != "drift")
}

func (b *badUpkeep) PurgeWindows(ctx context.Context, endedMs, madeUs int64, limit int) (int64, error) {
	if b.flaw == "purge" {
		endedMs += 4000
	}
	return b.Model.PurgeWindows(ctx, endedMs, madeUs, limit)
}

func (b *badUpkeep) Flush(ctx context.Context) (int64, error) {
	if b.flaw == "flush" {
		return b.Generation(ctx)
	}
	return b.Model.Flush(ctx)
}

func (b *badUpkeep) Frontier(ctx context.Context, s slots.Series, chunkMs int64) (int64, bool, error) {
	if b.flaw == "frontier" {
		s.SizeMs = 4000
	}
	return b.Model.Frontier(ctx, s, chunkMs)
}

// TestSuiteFindsFlaws runs the short suite for real stores, and in the long form the whole one, on
// broken ones, each in a process of its own, which must fail.
func TestSuiteFindsFlaws(t *testing.T) {
	for flaw := range suiteFlaws() {
		t.Run(flaw, func(t *testing.T) {
			cmd := exec.CommandContext(limited(t), os.Args[0], "-test.run=^TestFlawedStore$", "-test.failfast",
				"-test.timeout=20s")
			cmd.Env = append(os.Environ(), envFlaw+"="+flaw)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("nothing wrong was found:\n%s", out)
			}
			t.Logf("%.300s", out)
		})
	}
}

// TestFlawedStore is the part of that process.
func TestFlawedStore(t *testing.T) {
	flaw := os.Getenv(envFlaw)
	broken, ok := suiteFlaws()[flaw]
	switch {
	case flaw == "":
		t.Skip("TestSuiteFindsFlaws runs it")
	case !ok:
		fmt.Println("there is no such flaw")
		os.Exit(0) // which the one that waits takes for a failure
	}
	h := Harness{Name: "model", Short: Parts, Fresh: func(*testing.T) Database {
		m := NewModel()
		m.clockUs = time.Now().UnixMicro()
		return Database{Open: func(*testing.T) slots.Store { return broken(m) }}
	}}
	if _, upkeep := broken(NewModel()).(*badUpkeep); upkeep {
		for _, c := range append(upkeepChecks(), storeChecks()...) {
			h.Checks = append(h.Checks, c.name)
		}
	}
	Run(t, h)
}
