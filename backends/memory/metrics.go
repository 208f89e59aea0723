package memory

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Figures returns the metrics of the backend.
func (b *Backend) Figures() []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_memory_keys", "Counters in memory.", func() int { return b.Stats().Keys }),
		metrics.GaugeOf("headgate_memory_leases", "Leases of requests in flight in memory.",
			func() int64 { return b.Stats().Leases }),
		metrics.GaugeOf("headgate_memory_log_records", "Records of 16 bytes that sliding logs in memory have room for.",
			func() int64 { return b.Stats().Records }),
		metrics.CounterOf("headgate_memory_log_merges_total", "How often a sliding log got coarser because the bound on "+
			"records is reached.", func() uint64 { return b.Stats().Merged }),
		metrics.CounterOf("headgate_memory_evictions_total", "Counters dropped before they expired because memory was full.",
			func() uint64 { return b.Stats().Evicted }),
		metrics.CounterOf("headgate_memory_expirations_total", "Counters that expired.",
			func() uint64 { return b.Stats().Expired }),
	}
}

// Stats are figures for an operator.
type Stats struct {
	// Keys is the number of keys with state, Leases the number of requests in
	// flight under them when they were last used.
	Keys   int
	Leases int64
	// Records is how many records sliding logs have room for.
	Records int64
	// Merged counts how often a log was made coarser because of MaxRecords.
	Merged uint64
	// Expired counts states dropped after their end, Evicted those dropped
	// before it because of MaxKeys.
	Expired, Evicted uint64
}

// Stats returns the present figures.
func (b *Backend) Stats() Stats {
	sum := Stats{Leases: b.leases.Load(), Records: b.records.Load()}
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		sum.Keys += len(s.queue)
		sum.Expired += s.expired
		sum.Evicted += s.evicted
		sum.Merged += s.merged
		s.mu.Unlock()
	}
	return sum
}
