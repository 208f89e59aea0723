package rediscache

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows returns the metrics of the cache. Those of a nil Cache are 0.
func (c *Cache) Rows() []metrics.Row {
	figure := func(f func(Stats) int64) func() int64 {
		return func() int64 {
			if c == nil {
				return 0
			}
			return f(c.Stats())
		}
	}
	return []metrics.Row{
		metrics.CounterOf("headgate_notify_redis_decisions_total", "Sends decided in Redis.",
			figure(func(s Stats) int64 { return s.ByRedis })),
		metrics.CounterOf("headgate_notify_fallbacks_total", "Sends decided in the database because Redis did not answer.",
			figure(func(s Stats) int64 { return s.Fallbacks })),
		metrics.CounterOf("headgate_notify_lost_units_total", "Units that were counted in Redis for messages that could "+
			"not be delivered.", figure(func(s Stats) int64 { return s.Lost })),
		metrics.GaugeOf("headgate_notify_redis_up", "1 if Redis answered last, else 0; 0 without --redis.",
			figure(func(s Stats) int64 { return int64(metrics.Truth(s.Up)) })),
		metrics.GaugeOf("headgate_notify_sync_waiting_users", "Users whose count in Redis the database does not have yet.",
			figure(func(s Stats) int64 { return int64(s.SyncWaiting) })),
		metrics.GaugeOf("headgate_notify_removals_waiting_users",
			"Users whose hash in Redis is still to be removed after a change of their limit.",
			figure(func(s Stats) int64 { return int64(s.RemovalsWait) })),
	}
}
