package sqlstore

import "github.com/headgate-rls/headgate/backends"

// Figures returns the metrics of the backend.
func (b *Backend) Figures() []backends.Figure {
	return []backends.Figure{
		backends.Gauge("headgate_sql_pool_connections", "Connections to the database of limits.",
			func() int { return b.db.Pool().Open }),
		backends.Gauge("headgate_sql_pool_in_use", "Connections to the database of limits that are in use.",
			func() int { return b.db.Pool().InUse }),
		backends.Counter("headgate_sql_retries_total", "Transactions of limits that were repeated after a deadlock, "+
			"a race for a new row, a wait for a lock or a lost connection.", b.retries.Load),
		backends.Counter("headgate_sql_held_requests_total", "Requests for limits that failed as another process held "+
			"their rows, while others of their slice were decided.", b.held.Load),
		backends.Counter("headgate_sql_expired_rows_total", "Rows of limits that were deleted because they had expired.",
			b.swept.Load),
	}
}
