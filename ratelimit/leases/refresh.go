package leases

import (
	"context"

	"github.com/headgate-rls/headgate/limit"
)

// refreshCounts reads under which keys requests are in flight, and how many.
func (t *Tracker) refreshCounts(ctx context.Context) (err error) {
	defer func() { t.tally.nextRound(t.refreshEvery(), err == nil, t.wall()) }()
	if t.longestLife() == 0 && t.tally.size() == 0 {
		return nil // no rule grants leases
	}
	if err = t.putKeys(ctx); err != nil {
		return err
	}
	if t.conf.Registry != nil {
		rows, err := t.conf.Registry.List(ctx, inFlightTable)
		if err != nil {
			return err
		}
		t.tally.merge(rows)
	}
	list, ops := t.tally.questions(limit.Op{})
	return t.store.takeInBatches(ctx, ops, func(from int, out []limit.Verdict) {
		for i := range out {
			t.tally.takeAnswer(list[from+i], &out[i])
		}
	})
}

// putKeys puts keys under which requests are in flight into the registry.
func (t *Tracker) putKeys(ctx context.Context) error {
	rows, life, put := t.tally.rowsToPut(t.refreshEvery())
	if len(rows) == 0 || t.conf.Registry == nil {
		return nil
	}
	left, err := t.conf.Registry.Put(ctx, inFlightTable, rows, life)
	if err != nil {
		t.tally.requeue(put)
	}
	if left > 0 {
		t.tally.noteOverflow()
	}
	return err
}
