package slotstest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// Procedure implements slots.Store: there is none.
func (m *Model) Procedure() slots.Procedure { return nil }

// ActiveConfig implements slots.Store.
func (m *Model) ActiveConfig(ctx context.Context, name string) (slots.Config, error) {
	if err := m.alone(ctx, "config"); err != nil {
		return slots.Config{}, err
	}
	defer m.mu.Unlock()
	for _, c := range m.configs {
		if c.Active && c.Name == name {
			return c, nil
		}
	}
	return slots.Config{}, slots.ErrConfigNotFound
}

// ActiveConfigs implements slots.Store.
func (m *Model) ActiveConfigs(ctx context.Context, limit int) ([]slots.Config, error) {
	if err := m.alone(ctx, "configs"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var active []slots.Config
	for _, c := range m.configs {
		if c.Active {
			active = append(active, c)
		}
	}
	slices.SortFunc(active, func(a, b slots.Config) int { return cmp.Compare(a.Name, b.Name) })
	return active[:min(limit, len(active))], nil
}

// PutConfig implements slots.Store.
func (m *Model) PutConfig(ctx context.Context, c slots.Config,
	seriesOf func(slots.Config) slots.Series) (slots.Config, error) {
	if err := m.write(ctx, "put config"); err != nil {
		return slots.Config{}, err
	}
	// Claims under way end first; those of the whole scope, so that it can be counted.
	scope := seriesOf(c).Scope
	err := m.await(ctx, func() bool {
		for tx := range m.open {
			for _, old := range m.configs {
				if old.ID == tx.configID && (old.Name == c.Name || seriesOf(old).Scope == scope) {
					return false
				}
			}
		}
		return true
	})
	if err != nil {
		m.mu.Unlock()
		return slots.Config{}, err
	}
	for i := range m.configs {
		old := &m.configs[i]
		if old.Name != c.Name || !old.Active {
			continue
		}
		from, to := seriesOf(*old), seriesOf(c)
		if from.Scope != to.Scope && m.used(from.Scope) {
			m.mu.Unlock()
			return slots.Config{}, slots.ErrScopeInUse
		}
		if from != to {
			m.drop(to)
		}
		old.Active = false
	}
	c.Active, c.SinceUs, c.CreatedUs = true, m.clockUs, m.clockUs
	m.configs = append(m.configs, c)
	m.changes++
	return c, m.wrote("put config")
}

// used reports whether the scope has slots.
func (m *Model) used(scope string) bool {
	for _, e := range m.events {
		if e.Scope == scope {
			return true
		}
	}
	return false
}

// Scope implements slots.Store.
func (m *Model) Scope(ctx context.Context, want string) (string, error) {
	if err := m.alone(ctx, "scope"); err != nil {
		return "", err
	}
	defer m.mu.Unlock()
	if m.scope == "" {
		m.scope = cmp.Or(want, slots.ScopeConfig)
	}
	return m.scope, nil
}

// Adopted implements slots.Store.
func (m *Model) Adopted(context.Context) (bool, error) { return false, nil }

// drop drops the windows and frontiers of a series.
func (m *Model) drop(s slots.Series) {
	maps.DeleteFunc(m.windows, func(k slots.WindowKey, _ *modelWindow) bool { return k.Series == s })
	maps.DeleteFunc(m.frontiers, func(k slots.WindowKey, _ int64) bool { return k.Series == s })
}

// Generation implements slots.Store.
func (m *Model) Generation(ctx context.Context) (int64, error) {
	if err := m.alone(ctx, "generation"); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	return m.changes, nil
}

// Flush implements slots.Store.
func (m *Model) Flush(ctx context.Context) (int64, error) {
	if err := m.write(ctx, "flush"); err != nil {
		return 0, err
	}
	m.changes++
	return m.changes, m.wrote("flush")
}

// SlotsSince implements slots.Store. It ends before the first slot that may yet
// be followed by an earlier one.
func (m *Model) SlotsSince(ctx context.Context, after slots.Position, limit int) ([]slots.Slot, error) {
	if err := m.alone(ctx, "slots since"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var list []slots.Slot
	horizon := m.clockUs + 1
	for _, e := range m.events {
		if e.owner != nil {
			horizon = min(horizon, e.CreatedUs)
		}
	}
	for _, e := range m.events {
		p := slots.Position{CreatedUs: e.CreatedUs, ID: e.ID}
		if e.CreatedUs < horizon && comparePositions(p, after) > 0 {
			list = append(list, e.Slot)
		}
	}
	slices.SortFunc(list, func(a, b slots.Slot) int { return comparePositions(positionOf(a), positionOf(b)) })
	return list[:min(limit, len(list))], nil
}

func positionOf(s slots.Slot) slots.Position { return slots.Position{CreatedUs: s.CreatedUs, ID: s.ID} }

func comparePositions(a, b slots.Position) int {
	return cmp.Or(cmp.Compare(a.CreatedUs, b.CreatedUs), cmp.Compare(a.ID, b.ID))
}

// Windows implements slots.Store.
func (m *Model) Windows(ctx context.Context, s slots.Series, fromMs, toMs int64, limit int) ([]slots.Window, error) {
	if err := m.alone(ctx, "windows"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var list []slots.Window
	for key, w := range m.windows {
		if key.Series == s && key.StartMs >= fromMs && key.StartMs < toMs {
			list = append(list, slots.Window{StartMs: key.StartMs, Count: w.count})
		}
	}
	slices.SortFunc(list, func(a, b slots.Window) int { return cmp.Compare(a.StartMs, b.StartMs) })
	return list[:min(limit, len(list))], nil
}

// Scheduled implements slots.Store.
func (m *Model) Scheduled(ctx context.Context, s slots.Series, fromMs, toMs int64) ([]slots.Window, error) {
	if err := m.alone(ctx, "scheduled"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	counts := map[int64]int64{}
	for _, e := range m.events {
		if e.owner == nil && e.Scope == s.Scope && e.ScheduledMs >= fromMs && e.ScheduledMs < toMs {
			counts[plan.WindowStart(e.ScheduledMs*1000, s.SizeMs)]++
		}
	}
	var list []slots.Window
	for _, at := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, slots.Window{StartMs: at, Count: counts[at]})
	}
	return list, nil
}

// Lead implements slots.Store, by the clock of the machine.
func (m *Model) Lead(ctx context.Context, work, holder string, ttl time.Duration) (bool, error) {
	if err := m.write(ctx, "lead"); err != nil {
		return false, err
	}
	now, l := time.Now().UnixMicro(), m.leases[work]
	mine := l.holder == holder || l.untilUs <= now
	if mine {
		m.leases[work] = modelLease{holder: holder, untilUs: now + ttl.Microseconds()}
	}
	return mine, m.wrote("lead")
}

// PurgeWindows implements slots.Store.
func (m *Model) PurgeWindows(ctx context.Context, endedMs, madeUs int64, limit int) (int64, error) {
	if err := m.write(ctx, "purge windows"); err != nil {
		return 0, err
	}
	windows, frontiers := 0, 0
	for key, w := range m.windows {
		if windows < limit && w.holder == nil && key.StartMs+key.SizeMs <= endedMs && w.madeUs < madeUs {
			delete(m.windows, key)
			windows++
		}
	}
	for key := range m.frontiers {
		// Together with the first of its windows: it must not promise what is gone.
		if frontiers < limit && key.StartMs+key.SizeMs <= endedMs && m.clockUs < madeUs {
			delete(m.frontiers, key)
			frontiers++
		}
	}
	return int64(windows + frontiers), m.wrote("purge windows")
}

// Now implements slots.Store.
func (m *Model) Now(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clockUs, nil
}

// PurgeSlots implements slots.Store.
func (m *Model) PurgeSlots(ctx context.Context, beforeUs int64, limit int) (int64, error) {
	if err := m.write(ctx, "purge slots"); err != nil {
		return 0, err
	}
	n := 0
	for id, e := range m.events {
		if n < limit && e.owner == nil && e.CreatedUs < beforeUs && e.ScheduledMs*1000 < beforeUs {
			delete(m.events, id)
			delete(m.slotIDs, e.ID)
			n++
		}
	}
	if n > 0 {
		m.changes++
	}
	return int64(n), m.wrote("purge slots")
}

// Drift implements slots.Store.
func (m *Model) Drift(ctx context.Context, fromMs, toMs int64, after *slots.WindowKey, limit int,
	repair bool) ([]slots.Drift, *slots.WindowKey, error) {
	if err := m.write(ctx, "drift"); err != nil {
		return nil, nil, err
	}
	keys := m.keysAfter(fromMs, toMs, after)
	var next *slots.WindowKey
	if len(keys) > limit {
		keys = keys[:limit]
		next = &keys[limit-1]
	}
	var drifts []slots.Drift
	for _, key := range keys {
		w, n := m.windows[key], m.inside(key.Scope, key.StartMs, key.StartMs+key.SizeMs)
		if w.holder != nil || w.count == n {
			continue
		}
		drifts = append(drifts, slots.Drift{WindowKey: key, Count: w.count, Slots: n, Repaired: repair})
		if repair {
			w.count = n
			m.changes++
		}
	}
	return drifts, next, m.wrote("drift")
}

func (m *Model) keysAfter(fromMs, toMs int64, after *slots.WindowKey) (keys []slots.WindowKey) {
	for key := range m.windows {
		if key.StartMs >= fromMs && key.StartMs < toMs && m.inUse(key.Series) &&
			(after == nil || compareKeys(key, *after) > 0) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// inUse reports whether an active config counts in the series.
func (m *Model) inUse(s slots.Series) bool {
	return slices.ContainsFunc(m.configs, func(c slots.Config) bool {
		return c.Active && slots.SeriesOf(c, m.scope == slots.ScopeShared) == s
	})
}

func compareKeys(a, b slots.WindowKey) int {
	return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.SizeMs, b.SizeMs), cmp.Compare(a.StartMs, b.StartMs))
}

// SetCount sets a counter, as somebody might by hand.
func (m *Model) SetCount(key slots.WindowKey, count int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.windows[key]; w != nil {
		w.count = count
		return
	}
	m.windows[key] = &modelWindow{count: count, madeUs: m.clockUs, held: map[*caller]int64{}}
}

// Pool implements slots.Store: a Model has no connections.
func (m *Model) Pool() slots.PoolStats { return slots.PoolStats{} }

// Migrate implements slots.Store.
func (m *Model) Migrate(context.Context) ([]string, error) { return nil, nil }

// Ping implements slots.Store.
func (m *Model) Ping(ctx context.Context) error {
	if err := m.alone(ctx, "ping"); err != nil {
		return err
	}
	m.mu.Unlock()
	return nil
}

// Close implements slots.Store.
func (m *Model) Close() error { return nil }
