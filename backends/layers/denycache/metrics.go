package denycache

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Figures returns the metrics of the layer.
func (b *Backend) Figures() []metrics.Row {
	return []metrics.Row{
		metrics.CounterOf("headgate_denycache_hits_total",
			"Requests refused from the cache, without a call to the backend.", func() uint64 { return b.stats().hits }),
		metrics.CounterOf("headgate_denycache_recalled_total", "Requests refused from the cache because the backend could "+
			"not be asked, and had refused them until later than that.", func() uint64 { return b.stats().recalled }),
		metrics.GaugeOf("headgate_denycache_entries", "Refusals in the cache.", func() int { return b.stats().entries }),
		metrics.CounterOf("headgate_denycache_evictions_total",
			"Refusals dropped because the cache was full.", func() uint64 { return b.stats().evictions }),
	}
}

type stats struct {
	hits      uint64
	recalled  uint64
	entries   int // some of which may be over
	evictions uint64
}

func (b *Backend) stats() (sum stats) {
	for i := range b.cache.shards {
		s := &b.cache.shards[i]
		s.mu.Lock()
		sum.hits += s.hits.Load()
		sum.recalled += s.recalled.Load()
		sum.entries += s.used
		sum.evictions += s.evictions
		s.mu.Unlock()
	}
	return sum
}
