package prefetch

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Figures returns the metrics of the layer.
func (b *Backend) Figures() []metrics.Row {
	return []metrics.Row{
		metrics.CounterOf("headgate_share_hits_total", "Requests that local_share admitted from units taken ahead, "+
			"without a call to the backend.", func() uint64 { return b.Stats().Hits }),
		metrics.GaugeOf("headgate_share_keys", "Counters that local_share knows: it may have taken units of them ahead.",
			func() int { return b.Stats().Keys }),
		metrics.CounterOf("headgate_share_taken_units_total", "Units that local_share took ahead.",
			func() uint64 { return b.Stats().Taken }),
		metrics.CounterOf("headgate_share_lapsed_units_total", "Units that local_share took ahead and that expired unused.",
			func() uint64 { return b.Stats().Expired }),
		metrics.CounterOf("headgate_share_returned_units_total", "Units that local_share took ahead and gave back unused.",
			func() uint64 { return b.Stats().Returned }),
		metrics.GaugeOf("headgate_share_replicas", "Replicas that `local_share: auto` divides by; 0: not known, or "+
			"without traffic for a minute, and nothing is taken ahead.", func() int { return int(b.replicas.Load()) }),
		metrics.CounterOf("headgate_share_full_total", "Charges for which local_share took nothing ahead because there were "+
			"too many counters.", func() uint64 { return b.Stats().Full }),
	}
}

// Stats are figures for an operator.
type Stats struct {
	// Hits counts the requests that were decided without the store.
	Hits uint64
	// Keys is the number of keys that the layer remembers.
	Keys int
	// Taken counts the units taken ahead, Expired those of them that expired
	// unspent.
	Taken, Expired uint64
	// Returned counts those that were given back.
	Returned uint64
	// Full counts ops that took nothing ahead because there was no room.
	Full uint64
}

// Stats returns the present figures.
func (b *Backend) Stats() Stats {
	var sum Stats
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		sum.Hits += s.hits
		sum.Keys += s.used
		sum.Taken += s.taken
		sum.Expired += s.expired
		sum.Returned += s.returned
		sum.Full += s.full
		s.mu.Unlock()
	}
	return sum
}
