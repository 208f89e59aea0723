package rediscache

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows returns the metrics of the cache. Those of a nil Cache are 0.
func (c *Cache) Rows() []metrics.Row {
	there := c != nil
	if !there {
		c = new(Cache)
	}
	return []metrics.Row{
		c.byRedis.Row("headgate_notify_redis_decisions_total", "Sends decided in Redis."),
		c.fallbacks.Row("headgate_notify_fallbacks_total", "Sends decided in the database because Redis did not answer."),
		c.lost.Row("headgate_notify_lost_units_total", "Units that were counted in Redis for messages that could "+
			"not be delivered."),
		metrics.GaugeOf("headgate_notify_redis_up", "1 if Redis answered last, else 0; 0 without --redis.",
			func() int { return metrics.Truth(there && c.up()) }),
		metrics.GaugeOf("headgate_notify_sync_waiting_users", "Users whose count in Redis the database does not have yet.",
			func() int { counts, _ := c.pending.size(); return counts }),
		metrics.GaugeOf("headgate_notify_removals_waiting_users",
			"Users whose hash in Redis is still to be removed after a change of their limit.",
			func() int { _, removals := c.pending.size(); return removals }),
	}
}
