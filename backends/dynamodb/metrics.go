package dynamodb

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Figures returns the metrics of the backend.
func (b *Backend) Figures() []metrics.Row {
	return []metrics.Row{
		metrics.CounterOf("headgate_dynamodb_calls_total", "Calls of DynamoDB.", b.calls.Load),
		metrics.CounterOf("headgate_dynamodb_retries_total",
			"Calls of DynamoDB that repeated another one, for whatever reason.", b.retries.Load),
		metrics.CounterOf("headgate_dynamodb_conflicts_total",
			"Writes to DynamoDB that were decided again, because others had written the same item.", b.conflicts.Load),
		metrics.CounterOf("headgate_dynamodb_throttled_total", "Calls that DynamoDB refused, or did in part only, "+
			"for lack of capacity or because a transaction had the item.", b.throttled.Load),
		metrics.CounterOf("headgate_dynamodb_settled_total",
			"Writes whose answer was lost, and of which the item has shown that they had happened.", b.settled.Load),
		metrics.GaugeOf("headgate_dynamodb_remembered_bytes", "Memory of the items that were seen, roughly.", b.cache.size),
	}
}
