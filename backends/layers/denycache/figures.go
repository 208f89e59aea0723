package denycache

import "github.com/headgate-rls/headgate/backends"

// Figures returns the metrics of the layer.
func (b *Backend) Figures() []backends.Figure {
	return []backends.Figure{
		backends.Counter("headgate_denycache_hits_total", "Requests refused from the cache, without a call to the backend.", func() uint64 { return b.Stats().Hits }),
		backends.Gauge("headgate_denycache_entries", "Refusals in the cache.", func() int { return b.Stats().Entries }),
		backends.Counter("headgate_denycache_evictions_total", "Refusals dropped because the cache was full.", func() uint64 { return b.Stats().Evictions }),
	}
}

// Stats are figures for an operator.
type Stats struct {
	// Hits counts the requests that were answered without the store.
	Hits uint64
	// Entries is the number of refusals kept, some of which may be over.
	Entries int
	// Evictions counts those that went for want of room, Invalidations those
	// that went because their key was changed, and those flushed.
	Evictions, Invalidations uint64
}

// Stats returns the present figures.
func (b *Backend) Stats() Stats {
	var sum Stats
	for i := range b.cache.shards {
		s := &b.cache.shards[i]
		s.mu.Lock()
		sum.Hits += s.hits.Load()
		sum.Entries += s.used
		sum.Evictions += s.evictions
		sum.Invalidations += s.invalidations
		s.mu.Unlock()
	}
	return sum
}
