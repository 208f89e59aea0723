package backendtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/backends"
)

// A registryModel is the plainest registry there is. Its fields are ways to be
// wrong.
type registryModel struct {
	mu   sync.Mutex
	rows map[[2]string]timed // by table and key; claims are a table, too

	overwrites, keeps, oneTable, endless, lax bool
}

type timed struct {
	value string
	ends  time.Time
}

func (m *registryModel) live(k [2]string) (string, bool) {
	r, ok := m.rows[k]
	return r.value, ok && r.ends.After(time.Now())
}

func (m *registryModel) count(table string) (n int) {
	for k := range m.rows {
		if _, ok := m.live(k); ok && k[0] == table {
			n++
		}
	}
	return n
}

func (m *registryModel) Claim(_ context.Context, name, value string, ttl time.Duration) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := [2]string{"claims", name}
	if there, ok := m.live(k); ok && there != value && !m.overwrites {
		return there, nil
	}
	m.rows[k] = timed{value, time.Now().Add(ttl)}
	return value, nil
}

func (m *registryModel) Put(_ context.Context, table string, rows []backends.Row,
	ttl time.Duration) (left int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.oneTable {
		table = ""
	}
	n := m.count(table)
	for _, r := range rows {
		if err := backends.CheckRow(r.Key, r.Value, ttl); err != nil && !m.lax {
			return 0, err
		}
	}
	for _, r := range rows {
		k := [2]string{table, r.Key}
		if _, ok := m.live(k); !ok {
			if n >= backends.MaxRows && !m.endless {
				left++
				continue
			}
			n++
		}
		m.rows[k] = timed{r.Value, time.Now().Add(ttl)}
	}
	return left, nil
}

func (m *registryModel) List(_ context.Context, table string) (list []backends.Row, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.oneTable {
		table = ""
	}
	for k := range m.rows {
		if value, ok := m.live(k); ok && k[0] == table {
			list = append(list, backends.Row{Key: k[1], Value: value})
		}
	}
	return list, nil
}

func (m *registryModel) Drop(_ context.Context, table string, keys []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		if !m.keeps {
			delete(m.rows, [2]string{table, key})
		}
	}
	return nil
}

// A registrar is a reference that has a registry.
type registrar struct {
	*reference
	model *registryModel
}

func (r registrar) Registry() backends.Registry { return r.model }

// TestSuiteNoticesWrongRegistries: the suite notices a registry that is wrong, and none
// that is right.
func TestSuiteNoticesWrongRegistries(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(m *registryModel)
		checks []string
	}{
		"right":              {func(*registryModel) {}, nil},
		"a later claim wins": {func(m *registryModel) { m.overwrites = true }, []string{"Claims"}},
		"dropped rows stay":  {func(m *registryModel) { m.keeps = true }, []string{"Tables"}},
		"tables share rows":  {func(m *registryModel) { m.oneTable = true }, []string{"Tables"}},
		"no bound":           {func(m *registryModel) { m.endless = true }, []string{"TableBound"}},
		"rows of any length": {func(m *registryModel) { m.lax = true }, []string{"TableBound"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // it waits for rows that never expire
				for _, check := range checks {
					if !slices.Contains([]string{"Claims", "Tables", "TableBound"}, check.name) {
						continue
					}
					m := &registryModel{rows: map[[2]string]timed{}}
					c.spoil(m)
					suite := Suite{Caps: referenceCaps(),
						Open: func(testing.TB) backends.Backend { return registrar{newReference(nil), m} }}
					want := slices.Contains(c.checks, check.name)
					if got := fails(t, check, suite); got != want && (want || c.checks == nil) {
						t.Errorf("%s failed: %v, want %v", check.name, got, want)
					}
				}
			})
		})
	}
}
