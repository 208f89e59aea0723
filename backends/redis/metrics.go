package redis

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Figures returns the metrics of the backend.
func (b *Backend) Figures() []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_redis_memory_used_bytes",
			"Memory that Redis uses, of all masters, as it said in the last 15 s.",
			func() int64 { return b.Vitals().MemoryUsed }),
		metrics.GaugeOf("headgate_redis_memory_max_bytes", "The maxmemory of all masters; 0 without a bound.",
			func() int64 { return b.Vitals().MemoryMax }),
		metrics.GaugeOf("headgate_redis_memory_used_ratio",
			"The part of maxmemory that the fullest master uses; 0 without a bound.",
			func() float64 { return b.Vitals().Fullest }),
		metrics.CounterOf("headgate_redis_evicted_keys_total", "Keys that Redis has evicted since this process started, "+
			"including keys of other programs. With noeviction, Redis evicts no keys.",
			func() int64 { return b.Vitals().Evicted }),
		metrics.CounterOf("headgate_redis_changes_total", "How often another Redis answered than before, after a restart or "+
			"a failover, its role had changed, or FLUSHALL or FLUSHDB had emptied it.",
			func() int64 { return b.Vitals().Changes }),
		metrics.GaugeOf("headgate_redis_pool_connections", "Connections to Redis.",
			func() uint32 { return b.client.PoolStats().TotalConns }),
		metrics.GaugeOf("headgate_redis_pool_idle_connections", "Idle connections to Redis.",
			func() uint32 { return b.client.PoolStats().IdleConns }),
		metrics.GaugeOf("headgate_redis_nodes_away",
			"Nodes of a Cluster that are not called because their circuit breaker is open.",
			func() int { return len(b.nodes.addresses()) }),
		metrics.CounterOf("headgate_redis_node_openings_total", "How often the circuit breaker of a Cluster's node opened.",
			func() int64 { return b.nodes.opened.Load() }),
		metrics.CounterOf("headgate_redis_node_refusals_total",
			"Calls not made because the circuit breaker of their node was open.",
			func() int64 { return b.nodes.refused.Load() }),
		metrics.CounterOf("headgate_redis_pool_timeouts_total", "Waits for a connection that ended in a timeout.",
			func() uint32 { return b.client.PoolStats().Timeouts }),
		metrics.CounterOf("headgate_redis_script_calls_total", "Calls of the script that decides.",
			func() int64 { return b.calls.Load() }),
		metrics.CounterOf("headgate_redis_counted_slices_total", "Slices of requests that were counted by INCRBY, without "+
			"the script.", func() int64 { return b.counted.Load() }),
		metrics.CounterOf("headgate_redis_script_loads_total", "Script calls that had to send the text of the script.",
			func() int64 { return b.noScript.Load() }),
		metrics.CounterOf("headgate_redis_refunds_total", "Refunds on a Cluster: what a refused request over several slots "+
			"took from the slots that admitted it, given back.", b.refunds.done.Load),
		metrics.CounterOf("headgate_redis_refunds_late_total", "Refunds that came too late to give everything back.",
			b.refunds.late.Load),
		metrics.CounterOf("headgate_redis_refunds_lost_total",
			"Refunds that failed: the units count until their window ends.",
			b.refunds.lost.Load),
		metrics.GaugeOf("headgate_redis_refunds_pending", "Refunds under way, at most 4,096.",
			func() int {
				pending, _ := b.refunds.waiting()
				return pending
			}),
		metrics.GaugeOf("headgate_redis_refunds_pending_bytes", "Memory of refunds under way, at most 4 MiB.",
			func() int {
				_, size := b.refunds.waiting()
				return size
			}),
		metrics.CounterOf("headgate_redis_retries_total",
			"Script calls repeated because the first one is known to have had no effect.",
			func() int64 { return b.retries.Load() }),
	}
}
