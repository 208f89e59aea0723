package kafka

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows returns the metrics of what is consumed.
func (c *Consumer) Rows() []metrics.Row {
	return []metrics.Row{
		metrics.CounterOf("headgate_notify_sender_sent_total", "Messages that were sent.", c.handled.Load),
		metrics.CounterOf("headgate_notify_sender_skipped_total", "Messages that were skipped: malformed, or given up.",
			c.skipped.Load),
		metrics.CounterOf("headgate_notify_sender_retried_total", "Messages that could not be sent and wait for another try.",
			c.retried.Load),
	}
}
