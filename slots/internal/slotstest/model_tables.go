package slotstest

import (
	"context"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// Find implements slots.Tables.
func (m *Model) Find(ctx context.Context, eventIDs []string) ([]slots.Slot, error) {
	if err := m.alone(ctx, "find"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if len(eventIDs) > slots.MaxBatch {
		m.misuse = append(m.misuse, "find was asked for more events than MaxBatch")
	}
	var found []slots.Slot
	seen := map[string]bool{}
	for _, id := range eventIDs {
		if e := m.events[id]; e != nil && e.owner == nil && !seen[id] {
			found = append(found, e.Slot)
			seen[id] = true
		}
	}
	return found, nil
}

// Peek implements slots.Tables.
func (m *Model) Peek(ctx context.Context, s slots.Series, windowMs int64) (int64, bool, error) {
	if err := m.alone(ctx, "peek"); err != nil {
		return 0, false, err
	}
	defer m.mu.Unlock()
	if w := m.windows[slots.WindowKey{Series: s, StartMs: windowMs}]; w != nil && w.maker == nil {
		return w.count, true, nil
	}
	return 0, false, nil
}

// Scout implements slots.Tables.
func (m *Model) Scout(ctx context.Context, s slots.Series, fromMs, toMs, max int64) (int64, bool, error) {
	if err := m.alone(ctx, "scout"); err != nil {
		return 0, false, err
	}
	defer m.mu.Unlock()
	for at := firstAt(fromMs, s.SizeMs); at < toMs; at += s.SizeMs {
		if w := m.windows[slots.WindowKey{Series: s, StartMs: at}]; w == nil || w.maker != nil || w.count < max {
			return at, true, nil
		}
	}
	return toMs, false, nil
}

// NoteFull implements slots.Store. A Model needs no hints, but checks them.
func (m *Model) NoteFull(ctx context.Context, s slots.Series, max int64, full slots.Span, generation int64) error {
	if err := m.write(ctx, "note full"); err != nil {
		return err
	}
	for at := full.FromMs; at < full.ToMs && generation == m.changes; at += s.SizeMs {
		if w := m.windows[slots.WindowKey{Series: s, StartMs: at}]; w != nil && w.count < max ||
			w == nil && m.inside(s.Scope, at, at+s.SizeMs) < max {
			m.misuse = append(m.misuse, "a window was noted as full that is not")
			break
		}
	}
	return m.wrote("note full")
}

// Uncounted implements slots.Tables.
func (m *Model) Uncounted(ctx context.Context, s slots.Series, fromMs, toMs, max int64) (int64, error) {
	if err := m.alone(ctx, "uncounted"); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	at := fromMs
	for at < toMs && m.windows[slots.WindowKey{Series: s, StartMs: at}] == nil &&
		m.inside(s.Scope, at, at+s.SizeMs) >= max {
		at += s.SizeMs
	}
	return at, nil
}

// firstAt is the first window that starts at ms or later.
func firstAt(ms, sizeMs int64) int64 {
	at := plan.WindowStart(ms*1000, sizeMs)
	if at < ms {
		at += sizeMs
	}
	return at
}

// Frontier implements slots.Tables.
func (m *Model) Frontier(ctx context.Context, s slots.Series, chunkMs int64) (int64, bool, error) {
	if err := m.alone(ctx, "frontier"); err != nil {
		return 0, false, err
	}
	defer m.mu.Unlock()
	end, ok := m.frontiers[slots.WindowKey{Series: s, StartMs: chunkMs}]
	return end, ok, nil
}

// Provision implements slots.Tables.
func (m *Model) Provision(ctx context.Context, s slots.Series, fromMs, toMs int64, f *slots.Frontier) (int64, error) {
	if err := m.write(ctx, "provision"); err != nil {
		return 0, err
	}
	if fromMs != plan.WindowStart(fromMs*1000, s.SizeMs) {
		m.misuse = append(m.misuse, "provisioning began at an instant that starts no window")
	}
	rows := int64(0)
	for at := fromMs; at < toMs; at += s.SizeMs {
		key := slots.WindowKey{Series: s, StartMs: at}
		if m.windows[key] == nil {
			m.windows[key] = &modelWindow{count: m.inside(s.Scope, at, at+s.SizeMs), madeUs: m.clockUs,
				held: map[*caller]int64{}}
			rows++
		}
	}
	if f != nil {
		key := slots.WindowKey{Series: s, StartMs: f.ChunkMs}
		if end, ok := m.frontiers[key]; !ok || end < f.EndMs {
			m.frontiers[key] = f.EndMs
		}
	}
	return rows, m.wrote("provision")
}

// inside counts the committed slots that are scheduled in [fromMs, toMs).
func (m *Model) inside(scope string, fromMs, toMs int64) (n int64) {
	for _, e := range m.events {
		if e.owner == nil && e.Scope == scope && e.ScheduledMs >= fromMs && e.ScheduledMs < toMs {
			n++
		}
	}
	return n
}
