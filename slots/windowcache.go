package slots

import (
	"slices"
	"sort"
	"sync"
)

// windowCache is what a process remembers of windows. It saves statements and decides nothing:
// counters only grow, so a window that was seen full stays full for its maximum.
// What makes counters shrink (repair, purge of slots) adds to the generation, at which
// everything is forgotten.
type windowCache struct {
	mu     sync.Mutex
	epoch  int // grows when all is forgotten
	firsts map[firstKey]int64
	full   map[string]*fullRuns // by version of a config
}

const (
	maxFirsts  = 1 << 16
	maxConfigs = 10_000
	maxRuns    = 256 // of one config
	// noteEvery is how many windows may be full beyond what is noted in the database:
	// a process that has just started reads as many rows.
	noteEvery = 64
)

// A firstKey is a first window under one version of a config.
type firstKey struct {
	configID string
	firstMs  int64
}

// fullRuns are stretches of full windows, in order and apart.
type fullRuns struct{ list []fullRun }

type fullRun struct {
	Span
	noted int64 // windows of it that the database knows to be full
}

func newWindowCache() *windowCache {
	c := new(windowCache)
	c.clear()
	return c
}

func (c *windowCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.firsts = make(map[firstKey]int64)
	c.full = make(map[string]*fullRuns)
}

// firstIsFull reports whether the first window is full for an event with this capacity
// there.
func (c *windowCache) firstIsFull(configID string, firstMs, capacity int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	count, ok := c.firsts[firstKey{configID, firstMs}]
	return ok && count >= capacity
}

// apply puts what is known into a search. The epoch goes with what it finds.
func (c *windowCache) apply(s *Search) (epoch int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	runs := c.full[s.ConfigID]
	if runs == nil {
		return c.epoch
	}
	if !s.Mixed {
		at, known := runs.after(s.FromMs)
		s.FromMs, s.Direct = at, known
		return c.epoch
	}
	for i := range s.Asks {
		a := &s.Asks[i]
		at, known := runs.after(a.FromMs)
		a.FromMs = at
		if i == 0 || at < s.FromMs {
			s.FromMs, s.Direct = at, known
		}
	}
	return c.epoch
}

// learn keeps what a search found, unless all was forgotten since it began, and
// returns runs that are worth noting in the database.
func (c *windowCache) learn(epoch int, s *Search, f *Found) (note []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		return nil
	}
	if f.FirstCount >= 0 {
		key := firstKey{s.ConfigID, s.FirstMs}
		put(c.firsts, maxFirsts, key, max(c.firsts[key], f.FirstCount))
	}
	if len(f.Full) == 0 {
		return nil
	}
	runs := c.full[s.ConfigID]
	if runs == nil {
		runs = new(fullRuns)
		put(c.full, maxConfigs, s.ConfigID, runs)
	}
	for _, span := range f.Full {
		r := runs.add(span)
		if n := (r.ToMs - r.FromMs) / s.SizeMs; n >= r.noted+noteEvery {
			r.noted = n
			note = append(note, r.Span)
		}
	}
	return note
}

// after is the first window, at ms or later, that is not known to be full; known: some
// before it are.
func (r *fullRuns) after(ms int64) (at int64, known bool) {
	i := sort.Search(len(r.list), func(i int) bool { return r.list[i].ToMs > ms })
	if i < len(r.list) && r.list[i].FromMs <= ms {
		return r.list[i].ToMs, true
	}
	return ms, false
}

// add joins a span with what it touches.
func (r *fullRuns) add(s Span) *fullRun {
	joined := fullRun{Span: s}
	first := sort.Search(len(r.list), func(i int) bool { return r.list[i].ToMs >= s.FromMs })
	last := first
	for ; last < len(r.list) && r.list[last].FromMs <= s.ToMs; last++ {
		f := r.list[last]
		joined.FromMs, joined.ToMs = min(joined.FromMs, f.FromMs), max(joined.ToMs, f.ToMs)
		joined.noted += f.noted
	}
	r.list = slices.Replace(r.list, first, last, joined)
	if len(r.list) > maxRuns { // the earliest is the least likely to be asked for
		drop := 0
		if first == 0 {
			drop = 1
		}
		r.list = slices.Delete(r.list, drop, drop+1)
		if first > drop {
			first--
		}
	}
	return &r.list[first]
}

// put adds to a map of bounded size; which entry makes room for a new one is left to
// chance.
func put[K comparable, V any](m map[K]V, most int, k K, v V) {
	if _, ok := m[k]; !ok && len(m) >= most {
		for old := range m {
			delete(m, old)
			break
		}
	}
	m[k] = v
}
