package slotstest

import (
	"context"
	"maps"
	"sync"

	"github.com/headgate-rls/headgate/slots"
)

// A Watcher sees the statements that are sent to a store, by name: "find",
// "peek", "scout", "uncounted", "frontier", "provision", "place", "begin", "lock", "claim",
// "commit", "rollback" and "call" of a procedure.
type Watcher struct {
	// Before runs ahead of a statement, which is not sent if it returns an error.
	Before func(ctx context.Context, op string) error
	// After runs behind a statement, and its error is the caller's.
	After func(op string, err error) error
}

// Watch returns the store with a Watcher between it and its callers.
func Watch(store slots.Store, w Watcher) slots.Store {
	if w.Before == nil {
		w.Before = func(context.Context, string) error { return nil }
	}
	if w.After == nil {
		w.After = func(_ string, err error) error { return err }
	}
	return &watched{Store: store, w: w}
}

type watched struct {
	slots.Store
	w Watcher
}

func watch[T any](ctx context.Context, w *Watcher, op string, do func() (T, error)) (T, error) {
	if err := w.Before(ctx, op); err != nil {
		var none T
		return none, err
	}
	v, err := do()
	return v, w.After(op, err)
}

// counted is a result with whether there is one.
type counted struct {
	n  int64
	ok bool
}

func (w *watched) Find(ctx context.Context, eventIDs []string) ([]slots.Slot, error) {
	return watch(ctx, &w.w, "find", func() ([]slots.Slot, error) { return w.Store.Find(ctx, eventIDs) })
}

func (w *watched) Peek(ctx context.Context, s slots.Series, windowMs int64) (int64, bool, error) {
	v, err := watch(ctx, &w.w, "peek", func() (v counted, err error) {
		v.n, v.ok, err = w.Store.Peek(ctx, s, windowMs)
		return v, err
	})
	return v.n, v.ok, err
}

func (w *watched) Scout(ctx context.Context, s slots.Series, fromMs, toMs, max int64) (int64, bool, error) {
	v, err := watch(ctx, &w.w, "scout", func() (v counted, err error) {
		v.n, v.ok, err = w.Store.Scout(ctx, s, fromMs, toMs, max)
		return v, err
	})
	return v.n, v.ok, err
}

func (w *watched) Uncounted(ctx context.Context, s slots.Series, fromMs, toMs, max int64) (int64, error) {
	return watch(ctx, &w.w, "uncounted", func() (int64, error) { return w.Store.Uncounted(ctx, s, fromMs, toMs, max) })
}

func (w *watched) Frontier(ctx context.Context, s slots.Series, chunkMs int64) (int64, bool, error) {
	v, err := watch(ctx, &w.w, "frontier", func() (v counted, err error) {
		v.n, v.ok, err = w.Store.Frontier(ctx, s, chunkMs)
		return v, err
	})
	return v.n, v.ok, err
}

func (w *watched) Provision(ctx context.Context, s slots.Series, fromMs, toMs int64, f *slots.Frontier) (int64, error) {
	return watch(ctx, &w.w, "provision", func() (int64, error) { return w.Store.Provision(ctx, s, fromMs, toMs, f) })
}

func (w *watched) Place(ctx context.Context, configID string, s slots.Series, windowMs, max int64,
	list []slots.Slot) (int64, bool, error) {
	v, err := watch(ctx, &w.w, "place", func() (v counted, err error) {
		v.n, v.ok, err = w.Store.Place(ctx, configID, s, windowMs, max, list)
		return v, err
	})
	return v.n, v.ok, err
}

func (w *watched) Begin(ctx context.Context, configID string) (slots.Tx, error) {
	tx, err := watch(ctx, &w.w, "begin", func() (slots.Tx, error) { return w.Store.Begin(ctx, configID) })
	if tx == nil || err != nil {
		if tx != nil {
			tx.Rollback()
		}
		return nil, err
	}
	return &watchedTx{Tx: tx, w: &w.w}, nil
}

func (w *watched) Procedure() slots.Procedure {
	if p := w.Store.Procedure(); p != nil {
		return watchedProcedure{p, &w.w}
	}
	return nil
}

type watchedProcedure struct {
	slots.Procedure
	w *Watcher
}

func (p watchedProcedure) Call(ctx context.Context, s *slots.Search) (slots.Found, error) {
	return watch(ctx, p.w, "call", func() (slots.Found, error) { return p.Procedure.Call(ctx, s) })
}

type watchedTx struct {
	slots.Tx
	w *Watcher
}

func (t *watchedTx) Lock(ctx context.Context, s slots.Series, windowMs, max int64) (int64, bool, error) {
	v, err := watch(ctx, t.w, "lock", func() (v counted, err error) {
		v.n, v.ok, err = t.Tx.Lock(ctx, s, windowMs, max)
		return v, err
	})
	return v.n, v.ok, err
}

func (t *watchedTx) Claim(ctx context.Context, s slots.Series, windowMs int64, list []slots.Slot) error {
	_, err := watch(ctx, t.w, "claim", func() (struct{}, error) { return struct{}{}, t.Tx.Claim(ctx, s, windowMs, list) })
	return err
}

func (t *watchedTx) Commit(ctx context.Context) error {
	_, err := watch(ctx, t.w, "commit", func() (struct{}, error) { return struct{}{}, t.Tx.Commit(ctx) })
	return err
}

func (t *watchedTx) Rollback() {
	_ = t.w.Before(context.Background(), "rollback") // cannot be refused
	t.Tx.Rollback()
}

// A Counter has how often each statement was sent.
type Counter struct {
	mu     sync.Mutex
	counts map[string]int
}

// Count returns the store with a Counter of its statements.
func Count(store slots.Store) (slots.Store, *Counter) {
	c := &Counter{counts: map[string]int{}}
	return Watch(store, Watcher{Before: func(_ context.Context, op string) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.counts[op]++
		return nil
	}}), c
}

// Take returns the counts since the last Take.
func (c *Counter) Take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := maps.Clone(c.counts)
	clear(c.counts)
	return counts
}
