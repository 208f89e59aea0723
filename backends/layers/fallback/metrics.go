package fallback

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Figures returns the metrics of the fallback.
func (l *Backend) Figures() []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_local_pending_keys", "Counters with units that on_backend_error: "+
			"local admitted and that are still to be charged to the backend.", l.Pending),
		metrics.GaugeOf("headgate_local_waiting_keys", "Counters with units that on_backend_error: local admitted and for "+
			"which the backend had no room. They are charged when it may have some.", func() int {
			_, waiting := l.owed()
			return waiting
		}),
		metrics.CounterOf("headgate_local_charged_units_total", "Units that on_backend_error: local admitted and that were "+
			"charged to the backend later.", func() uint64 { return l.Stats().Units }),
		metrics.CounterOf("headgate_local_short_units_total", "Units that on_backend_error: local admitted and for which "+
			"the backend had no room later.", func() uint64 { return l.Stats().Short }),
	}
}

// Stats are figures for an operator. All but the first only grow.
type Stats struct {
	Pending int
	// Overflow counts admissions that were not remembered, because MaxKeys
	// were.
	Overflow uint64
	// Units counts what keys were charged, Short units for which there was no room.
	Units, Short uint64
	// Refused counts keys that the primary cannot keep at all.
	Refused uint64
}

// Stats returns the present figures.
func (l *Backend) Stats() Stats {
	return Stats{
		Pending: l.Pending(), Overflow: l.overflow.Load(),
		Units: l.units.Load(), Short: l.short.Load(), Refused: l.refused.Load(),
	}
}
