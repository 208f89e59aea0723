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
			"charged to the backend later.", l.units.Load),
		metrics.CounterOf("headgate_local_short_units_total", "Units that on_backend_error: local admitted and for which "+
			"the backend had no room later.", l.short.Load),
	}
}
