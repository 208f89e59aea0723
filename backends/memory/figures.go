package memory

import "github.com/headgate-rls/headgate/backends"

// Figures returns the metrics of the backend.
func (b *Backend) Figures() []backends.Figure {
	return []backends.Figure{
		backends.Gauge("headgate_memory_keys", "Counters in memory.", func() int { return b.Stats().Keys }),
		backends.Gauge("headgate_memory_leases", "Leases of requests in flight in memory.", func() int64 { return b.Stats().Leases }),
		backends.Gauge("headgate_memory_log_records", "Records of 16 bytes that sliding logs in memory have room for.", func() int64 { return b.Stats().Records }),
		backends.Counter("headgate_memory_log_merges_total", "How often a sliding log got coarser because the bound on records is reached.", func() uint64 { return b.Stats().Merged }),
		backends.Counter("headgate_memory_evictions_total", "Counters dropped before they expired because memory was full.", func() uint64 { return b.Stats().Evicted }),
		backends.Counter("headgate_memory_expirations_total", "Counters that expired.", func() uint64 { return b.Stats().Expired }),
	}
}
