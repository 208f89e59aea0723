package prefetch

import "github.com/headgate-rls/headgate/backends"

// Figures returns the metrics of the layer.
func (b *Backend) Figures() []backends.Figure {
	return []backends.Figure{
		backends.Counter("headgate_share_hits_total", "Requests that local_share admitted from units taken ahead, without a call to the backend.", func() uint64 { return b.Stats().Hits }),
		backends.Gauge("headgate_share_keys", "Counters with units taken ahead by local_share.", func() int { return b.Stats().Keys }),
		backends.Counter("headgate_share_taken_units_total", "Units that local_share took ahead.", func() uint64 { return b.Stats().Taken }),
		backends.Counter("headgate_share_lapsed_units_total", "Units that local_share took ahead and that expired unused.", func() uint64 { return b.Stats().Expired }),
		backends.Counter("headgate_share_full_total", "Charges for which local_share took nothing ahead because there were too many counters.", func() uint64 { return b.Stats().Full }),
	}
}
