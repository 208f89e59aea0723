package fallback

import "github.com/headgate-rls/headgate/backends"

// Figures returns the metrics of the fallback.
func (l *Backend) Figures() []backends.Figure {
	return []backends.Figure{
		backends.Gauge("headgate_local_pending_keys", "Counters with units that on_backend_error: local admitted and that are still to be charged to the backend.", l.Pending),
		backends.Counter("headgate_local_charged_units_total", "Units that on_backend_error: local admitted and that were charged to the backend later.", func() uint64 { return l.Stats().Units }),
		backends.Counter("headgate_local_short_units_total", "Units that on_backend_error: local admitted and for which the backend had no room later.", func() uint64 { return l.Stats().Short }),
	}
}
