package sqlstore

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
)

// A process that stands still in the middle of a transaction holds rows. A slice that waits for one of
// them would fail with all its requests. So a slice that has waited without success reads which
// rows are held, and decides the requests that need none of them. While there are such rows, slices
// read that before they wait for any, which costs a round trip and a rollback more.
const (
	// waitShare is the part of a slice's time in which it must have its rows. LockWait ends before,
	// where the server knows milliseconds.
	waitShare = 0.625
	// patience is the part of a call's timeout in which rows that are held must come free. It is in
	// the order of asking, so that rows which others use all the time do.
	patience = 0.2
	// looksAfter is how many slices look first, after rows did not come free.
	looksAfter = 100
)

// suspects reports whether a slice is to look first.
func (b *Backend) suspects() bool { return b.looks.Load() > 0 && b.looks.Add(-1) >= 0 }

// takeFree decides the requests whose rows are free, and then the others, unless their rows stay held.
func (b *Backend) takeFree(ctx context.Context, s *slice) {
	held, err := b.heldKeys(ctx, s)
	if err != nil {
		s.fail(err)
		return
	}
	free, rest := s.divide(held)
	if err := b.decide(ctx, free, effort{wait: 1, again: passes}); err != nil {
		free.fail(err)
	}
	if len(rest.reqs) == 0 {
		return
	}
	if err := b.comeFree(ctx, held); err != nil {
		b.looks.Store(looksAfter)
		b.held.Add(int64(len(rest.reqs)))
		rest.fail(err)
		return
	}
	if err := b.decide(ctx, rest, effort{wait: 1, again: passes}); err != nil {
		rest.fail(err)
	}
}

// comeFree waits until the rows of keys can be locked. It locks no others, which it would hold
// meanwhile.
func (b *Backend) comeFree(ctx context.Context, held map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(patience*float64(b.conf.Timeout)))
	defer cancel()
	var keys [][]byte
	for _, k := range slices.Sorted(maps.Keys(held)) {
		keys = append(keys, []byte(k))
	}
	return b.run(ctx, "wait for rows that are held",
		&plain{keys: keys, then: func([][]byte, limit.Instant) ([]row, [][]byte) { return nil, nil }},
		effort{wait: 1, again: func(error) bool { return false }})
}

// heldKeys returns the keys of a slice whose rows somebody else has locked. It does not see rows that
// are about to be inserted.
func (b *Backend) heldKeys(ctx context.Context, s *slice) (map[string]bool, error) {
	const op = "look for rows that are held"
	d, keys := b.conf.dialect, s.begin()
	tx, err := d.begin(b.db, ctx, op)
	if err != nil {
		return nil, failed(err, false)
	}
	held := map[string]bool{}
	err = tx.Read(ctx, op, nil, []sqldb.Query{d.there(keys), d.expired(keys, math.MaxInt64)},
		func(i int, scan func(...any) error) error {
			var key []byte
			err := scan(&key)
			if i == 0 {
				held[string(key)] = true
			} else {
				delete(held, string(key)) // it is ours
			}
			return err
		})
	if err != nil {
		b.abandon(tx)
		return nil, failed(err, false)
	}
	tx.RollbackWithin(ctx)
	return held, nil
}

// divide separates requests that touch none of the keys from those that do.
func (s *slice) divide(held map[string]bool) (free, rest *slice) {
	free, rest = &slice{}, &slice{}
	for i, req := range s.reqs {
		to := free
		for op := range req.Ops {
			if held[string(counterKey(req.Ops[op].Key))] {
				to = rest
			}
		}
		to.reqs, to.out = append(to.reqs, req), append(to.out, s.out[i])
	}
	return free, rest
}
