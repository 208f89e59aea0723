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
