package slots

import (
	"sync"
	"time"
)

// What a process remembers of windows. It saves statements and decides nothing:
// counters only grow, so a window that was seen full stays full for its version of
// the config. What makes counters shrink (repair, purge of slots) flushes, and
// everything is forgotten after a while.
type hints struct {
	now func() time.Time

	mu        sync.Mutex
	epoch     int // grows when all is forgotten
	starts    map[startKey]startHint
	frontiers map[frontierKey]frontierHint
}

const (
	maxHints = 1 << 16 // of each kind
	hintLife = time.Minute
)

// A startKey is a first window under one version of a config: another maximum
// makes another window full.
type startKey struct {
	configID string
	firstMs  int64
}

type startHint struct {
	learned    time.Time
	firstKnown bool
	firstCount int64 // the highest count seen (F10)
	lowMs      int64 // the later windows before it are full (F8)
	direct     bool  // the window at lowMs had room
}

type frontierKey struct {
	Series
	gridMs int64
}

type frontierHint struct {
	learned time.Time
	endMs   int64
}

func newHints(now func() time.Time) *hints {
	h := &hints{now: now}
	h.clear()
	return h
}

func (h *hints) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epoch++
	h.starts = make(map[startKey]startHint)
	h.frontiers = make(map[frontierKey]frontierHint)
}

// apply puts what is known into a search for the window s.FirstMs of a config.
// The epoch goes with what the search finds.
func (h *hints) apply(s *Search) (epoch int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	grid := s.GridMs()
	if f, ok := h.frontiers[frontierKey{s.Series, grid}]; ok && now.Sub(f.learned) < hintLife {
		s.FrontierMs = f.endMs
		s.FirstKnown = s.FirstMs >= grid // chunks are provisioned whole
	}
	k, ok := h.starts[startKey{s.ConfigID, s.FirstMs}]
	if !ok || now.Sub(k.learned) >= hintLife {
		return h.epoch
	}
	s.FirstKnown = s.FirstKnown || k.firstKnown
	if k.lowMs > s.FromMs && k.lowMs <= s.EndMs {
		s.FromMs, s.Direct = k.lowMs, k.direct
	}
	for i := range s.Asks {
		if k.firstCount >= s.Asks[i].FirstMax {
			s.Asks[i].FirstMax = 0
		}
	}
	return h.epoch
}

// learn keeps what a search found, unless all was forgotten since it began.
func (h *hints) learn(epoch int, s *Search, f *Found) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if epoch != h.epoch {
		return
	}
	now := h.now()
	if f.FrontierMs > s.GridMs() {
		key, end := frontierKey{s.Series, s.GridMs()}, f.FrontierMs
		if old, ok := h.frontiers[key]; ok {
			end = max(old.endMs, end)
		}
		put(h.frontiers, key, frontierHint{now, end})
	}
	key := startKey{s.ConfigID, s.FirstMs}
	k, ok := h.starts[key]
	if !ok {
		k.firstCount, k.lowMs = -1, s.BaseMs
	}
	k.learned = now
	if f.FirstCount >= 0 {
		k.firstKnown = true
		k.firstCount = max(k.firstCount, f.FirstCount)
	}
	if f.LowMs > s.BaseMs {
		k.lowMs = max(k.lowMs, f.LowMs)
	}
	k.direct = false
	for i := range f.Answers {
		a := &f.Answers[i]
		if a.Status == New && a.Slot.WindowMs >= s.BaseMs {
			k.lowMs = max(k.lowMs, s.BaseMs)
			k.direct = true
			break
		}
	}
	put(h.starts, key, k)
}

// put adds to a map that holds at most maxHints; which entry makes room for a
// new one is left to chance.
func put[K comparable, V any](m map[K]V, k K, v V) {
	if _, ok := m[k]; !ok && len(m) >= maxHints {
		for old := range m {
			delete(m, old)
			break
		}
	}
	m[k] = v
}
