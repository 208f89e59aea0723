package slots_test

import (
	"context"
	"testing"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/internal/slotstest"
)

// purged is a store in which a purge drops the row of a window after a claim has found it and
// before the claim locks it, once.
type purged struct {
	slots.Store
	done bool
}

func (p *purged) Begin(ctx context.Context, configID string) (slots.Tx, error) {
	tx, err := p.Store.Begin(ctx, configID)
	return purgedTx{tx, p}, err
}

type purgedTx struct {
	slots.Tx
	p *purged
}

func (t purgedTx) Lock(ctx context.Context, s slots.Series, windowMs, max int64) (int64, bool, error) {
	if !t.p.done {
		t.p.done = true
		return 0, false, nil
	}
	return t.Tx.Lock(ctx, s, windowMs, max)
}

// A claim whose window is purged before it locks the row makes the row again: the event still
// gets its first window.
func TestAPurgeDuringAClaimCostsNoWindow(t *testing.T) {
	s := newScheduler(t, &purged{Store: slotstest.NewModel()}, slots.Settings{})
	put(t, s, slots.NewConfig{Max: 1})
	if got := window(assign(t, s, "a", noon)); got != 0 {
		t.Errorf("the event is in window %d, want 0", got)
	}
	if got := window(assign(t, s, "b", noon)); got != 1 {
		t.Errorf("the next event is in window %d, want 1", got)
	}
}
