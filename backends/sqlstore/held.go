package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
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
	waitShare = 0.4
	// patience is the part of a call's timeout in which rows that are held must come free, and comeShare
	// the part of the time that a slice has left for that. It is in the order of asking, so that rows
	// which others use all the time do.
	patience  = 0.2
	comeShare = 0.6
	// looksAfter is how many slices look first, after one has waited for rows without success.
	looksAfter = 100
	// maxStuck bounds the keys that are known to be held.
	maxStuck = 10_000
)

var errStuck = fmt.Errorf("%w: %w: another transaction holds the row of the key, and does not end: "+
	"look for a session that is idle in a transaction", backends.ErrDeclined, backends.ErrNotApplied)

// waits are the keys whose rows are held, and for how long slices have waited for each without success.
type waits struct {
	mu    sync.Mutex
	byKey map[string]time.Duration
}

// suspects reports whether a slice is to look first. With the last that does, all is forgotten.
func (b *Backend) suspects() bool {
	if b.looks.Load() <= 0 {
		return false
	}
	if b.looks.Add(-1) == 0 {
		b.waits.mu.Lock()
		defer b.waits.mu.Unlock()
		clear(b.waits.byKey)
	}
	return true
}

// stuck returns those of the held keys of a slice for which slices have waited long enough, and forgets
// those of its keys that are not held.
func (w *waits) stuck(keys [][]byte, held map[string]bool, most time.Duration) map[string]bool {
	stuck := map[string]bool{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		switch waited := w.byKey[string(key)]; {
		case !held[string(key)]:
			delete(w.byKey, string(key))
		case waited >= most:
			stuck[string(key)] = true
		}
	}
	return stuck
}

// add notes that a slice has waited for keys, or, if they came free, that none has.
func (w *waits) add(keys map[string]bool, waited time.Duration, free bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range keys {
		_, known := w.byKey[key]
		switch {
		case free:
			delete(w.byKey, key)
		case known || len(w.byKey) < maxStuck:
			w.byKey[key] += waited
		}
	}
}

// takeFree decides the requests whose rows are free, and then the others, unless their rows stay held.
// Nobody waits for rows that have been held for long.
func (b *Backend) takeFree(ctx context.Context, s *slice) {
	held, err := b.heldKeys(ctx, s)
	if err != nil {
		s.fail(err)
		return
	}
	stuck := b.waits.stuck(s.keys, held, b.patience())
	free, rest := s.divide(held)
	rest, hopeless := rest.divide(stuck)
	if err := b.decide(ctx, free, effort{wait: 1, again: passes}); err != nil {
		free.fail(err)
	}
	if len(hopeless.reqs) > 0 {
		b.stayHeld(hopeless)
	}
	if len(rest.reqs) == 0 {
		return
	}
	maps.DeleteFunc(held, func(key string, _ bool) bool { return stuck[key] })
	if !b.comeFree(ctx, held) {
		b.stayHeld(rest)
		return
	}
	if err := b.decide(ctx, rest, effort{wait: 1, again: passes}); err != nil {
		rest.fail(err)
	}
}

// stayHeld answers requests whose rows are held.
func (b *Backend) stayHeld(s *slice) {
	b.looks.Store(looksAfter)
	b.held.Add(int64(len(s.reqs)))
	s.fail(errStuck)
}

// patience is how long rows that are held may take to come free.
func (b *Backend) patience() time.Duration { return time.Duration(patience * float64(b.conf.Timeout)) }

// comeFree waits until the rows of keys can be locked, and reports whether they could. It locks no
// others, which it would hold meanwhile.
func (b *Backend) comeFree(ctx context.Context, held map[string]bool) bool {
	most := b.patience()
	if until, ok := ctx.Deadline(); ok {
		most = min(most, time.Duration(comeShare*float64(time.Until(until))))
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var keys [][]byte
	for _, k := range slices.Sorted(maps.Keys(held)) {
		keys = append(keys, []byte(k))
	}
	err := b.run(ctx, "wait for rows that are held",
		&plain{keys: keys, then: func([][]byte, limit.Instant) ([]row, [][]byte) { return nil, nil }},
		effort{wait: 1, again: func(error) bool { return false }})
	b.waits.add(held, most, err == nil)
	return err == nil
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
	var key []byte
	there, ours := d.there(keys), d.expired(keys, math.MaxInt64)
	there.Each = func(scan func(...any) error) error {
		err := scan(&key)
		held[string(key)] = true
		return err
	}
	ours.Each = func(scan func(...any) error) error {
		err := scan(&key)
		delete(held, string(key))
		return err
	}
	if _, err = tx.Run(ctx, op, there, ours); err != nil {
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

// maxKeys bounds the rows of one transaction. A slice whose requests have more ops takes several.
const maxKeys = 1000

// Take implements [backends.Backend].
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	s := slice{}
	ops := 0
	for i := range reqs {
		if err := b.caps.CheckRequest(&reqs[i]); err != nil {
			backends.Fail(out[i:i+1], err)
			continue
		}
		if ops += len(reqs[i].Ops); ops > maxKeys {
			b.take(ctx, &s)
			s, ops = slice{}, len(reqs[i].Ops)
		}
		s.reqs, s.out = append(s.reqs, &reqs[i]), append(s.out, &out[i])
	}
	b.take(ctx, &s)
}

// take decides a slice: all of it at once, unless somebody holds rows for long.
func (b *Backend) take(ctx context.Context, s *slice) {
	ctx, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	splits := b.conf.dialect.there != nil
	if splits && len(s.reqs) > 0 && b.suspects() {
		b.takeFree(ctx, s)
		return
	}
	e := effort{wait: 1, again: passes}
	if splits {
		e = effort{wait: waitShare, again: func(err error) bool { return passes(err) && sqldb.KindOf(err) != sqldb.Held }}
	}
	switch err := b.decide(ctx, s, e); {
	case err == nil:
	case splits && sqldb.KindOf(err) == sqldb.Held && errors.Is(err, backends.ErrNotApplied):
		b.looks.Store(looksAfter)
		b.takeFree(ctx, s)
	default:
		s.fail(err)
	}
}
