package memory

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
)

// A registry keeps tables in this process.
type registry struct {
	now func() time.Time

	mu     sync.Mutex
	claims map[string]row
	tables map[string]map[string]row
}

type row struct {
	value string
	ends  time.Time
}

// NewRegistry returns an empty registry, for a store that has none: replicas
// know nothing of each other.
func NewRegistry(now func() time.Time) backends.Registry {
	return &registry{now: now, claims: map[string]row{}, tables: map[string]map[string]row{}}
}

func expire(rows map[string]row, now time.Time) {
	for key, r := range rows {
		if !r.ends.After(now) {
			delete(rows, key)
		}
	}
}

// Claim implements [backends.Registry].
func (t *registry) Claim(_ context.Context, name, value string, ttl time.Duration) (string, error) {
	if err := backends.CheckRow(name, value, ttl); err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if c, ok := t.claims[name]; ok && c.ends.After(now) && c.value != value {
		return c.value, nil
	}
	expire(t.claims, now)
	t.claims[name] = row{value, now.Add(ttl)}
	return value, nil
}

// Put implements [backends.Registry].
func (t *registry) Put(_ context.Context, table string, rows []backends.Row, ttl time.Duration) (left int, err error) {
	for _, r := range rows {
		if err := backends.CheckRow(r.Key, r.Value, ttl); err != nil {
			return 0, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now, here := t.now(), t.tables[table]
	if here == nil {
		here = map[string]row{}
		t.tables[table] = here
	}
	expire(here, now)
	for _, r := range rows {
		if _, ok := here[r.Key]; !ok && len(here) >= backends.MaxRows {
			left++
			continue
		}
		here[r.Key] = row{r.Value, now.Add(ttl)}
	}
	return left, nil
}

// List implements [backends.Registry].
func (t *registry) List(_ context.Context, table string) ([]backends.Row, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	expire(t.tables[table], t.now())
	list := make([]backends.Row, 0, len(t.tables[table]))
	for key, r := range t.tables[table] {
		list = append(list, backends.Row{Key: key, Value: r.value})
	}
	return list, nil
}

// Drop implements [backends.Registry].
func (t *registry) Drop(_ context.Context, table string, keys []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		delete(t.tables[table], key)
	}
	return nil
}
