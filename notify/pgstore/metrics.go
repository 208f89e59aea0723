package pgstore

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows returns the metrics of the store.
func (s *Store) Rows() []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_notify_outbox_messages", "Messages that wait in the outbox, as of the last look.",
			s.waiting.Load),
		metrics.CounterOf("headgate_notify_recounts_total",
			"Messages that a second transaction counted, as the commit of the first one failed.", s.recounts.Load),
		metrics.CounterOf("headgate_notify_uncounted_total", "Messages that were published and could not be counted.",
			s.uncounted.Load),
		metrics.GaugeOf("headgate_notify_pool_connections", "Connections to the database.",
			func() int { return s.db.Pool().Open }),
		metrics.GaugeOf("headgate_notify_pool_busy_connections", "Connections to the database that are in use.",
			func() int { return s.db.Pool().InUse }),
		metrics.GaugeOf("headgate_notify_pool_max_connections", "Most connections to the database.",
			func() int { return s.db.Pool().Max }),
		metrics.CounterOf("headgate_notify_pool_waits_total", "Waits for a connection to the database.",
			func() int64 { return s.db.Pool().Waits }),
	}
}
