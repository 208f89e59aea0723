package sqlstore

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Figures returns the metrics of the backend.
func (b *Backend) Figures() []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_sql_pool_connections", "Connections to the database of limits.",
			func() int { return b.db.Pool().Open }),
		metrics.GaugeOf("headgate_sql_pool_in_use", "Connections to the database of limits that are in use.",
			func() int { return b.db.Pool().InUse }),
		metrics.CounterOf("headgate_sql_retries_total", "Transactions of limits that were repeated after a deadlock, "+
			"a race for a new row, a wait for a lock or a lost connection.", b.retries.Load),
		metrics.CounterOf("headgate_sql_held_requests_total", "Requests for limits that failed as another process held "+
			"their rows, while others of their slice were decided.", b.held.Load),
		metrics.CounterOf("headgate_sql_expired_rows_total", "Rows of limits that were deleted because they had expired.",
			b.swept.Load),
	}
}
