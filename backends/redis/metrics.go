package redis

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Stats are figures for metrics. All but the pool's state only grow.
type Stats struct {
	Calls    int64 // of the script
	Counted  int64 // slices that were decided without it
	NoScript int64 // of them that had to send its text
	Retries  int64 // calls sent again because they are known to have had no effect
	// Refunds counts parts of refused requests over several slots of a Cluster
	// that were given back, RefundsLate those of which nothing or not all was
	// worth anything any more, and RefundsLost those that could not be.
	Refunds, RefundsLate, RefundsLost int64
	// RefundsPending are those that are still to be given back, RefundBytes
	// their memory.
	RefundsPending, RefundBytes int

	// NodesAway are the addresses of the nodes of a Cluster that are left
	// alone because they failed. NodeOpened counts how often that began,
	// NodeRefused the calls that failed at once.
	NodesAway               []string
	NodeOpened, NodeRefused int64

	PoolHits, PoolMisses, PoolTimeouts, PoolStale uint32
	Connections, IdleConnections                  uint32
}

// Stats returns the figures so far.
func (b *Backend) Stats() Stats {
	p := b.client.PoolStats()
	pending, size := b.refunds.waiting()
	return Stats{
		Calls: b.calls.Load(), Counted: b.counted.Load(), NoScript: b.noScript.Load(), Retries: b.retries.Load(),
		Refunds: b.refunds.done.Load(), RefundsLate: b.refunds.late.Load(), RefundsLost: b.refunds.lost.Load(),
		RefundsPending: pending, RefundBytes: size,
		NodesAway: b.nodes.addresses(), NodeOpened: b.nodes.opened.Load(), NodeRefused: b.nodes.refused.Load(),
		PoolHits: p.Hits, PoolMisses: p.Misses, PoolTimeouts: p.Timeouts, PoolStale: p.StaleConns,
		Connections: p.TotalConns, IdleConnections: p.IdleConns,
	}
}

// Figures returns the metrics of the backend.
func (b *Backend) Figures() []metrics.Row {
	gauge := func(name, help string, f func(Stats) float64) metrics.Row {
		return metrics.GaugeOf(name, help, func() float64 { return f(b.Stats()) })
	}
	vital := func(name, help string, f func(Vitals) float64) metrics.Row {
		return metrics.GaugeOf(name, help, func() float64 { return f(b.Vitals()) })
	}
	counter := func(name, help string, f func(Stats) float64) metrics.Row {
		return metrics.CounterOf(name, help, func() float64 { return f(b.Stats()) })
	}
	return []metrics.Row{
		vital("headgate_redis_memory_used_bytes", "Memory that Redis uses, of all masters, as it said in the last 15 s.",
			func(v Vitals) float64 { return float64(v.MemoryUsed) }),
		vital("headgate_redis_memory_max_bytes", "The maxmemory of all masters; 0 without a bound.",
			func(v Vitals) float64 { return float64(v.MemoryMax) }),
		vital("headgate_redis_memory_used_ratio", "The part of maxmemory that the fullest master uses; 0 without a bound.",
			func(v Vitals) float64 { return v.Fullest }),
		metrics.CounterOf("headgate_redis_evicted_keys_total", "Keys that Redis has evicted since this process started, "+
			"including keys of other programs. With noeviction, Redis evicts no keys.",
			func() int64 { return b.Vitals().Evicted }),
		metrics.CounterOf("headgate_redis_changes_total", "How often another Redis answered than before, after a restart or "+
			"a failover, or its role had changed.", func() int64 { return b.Vitals().Changes }),
		gauge("headgate_redis_pool_connections", "Connections to Redis.",
			func(s Stats) float64 { return float64(s.Connections) }),
		gauge("headgate_redis_pool_idle_connections", "Idle connections to Redis.",
			func(s Stats) float64 { return float64(s.IdleConnections) }),
		gauge("headgate_redis_nodes_away", "Nodes of a Cluster that are not called because their circuit breaker is open.",
			func(s Stats) float64 { return float64(len(s.NodesAway)) }),
		counter("headgate_redis_node_openings_total", "How often the circuit breaker of a Cluster's node opened.",
			func(s Stats) float64 { return float64(s.NodeOpened) }),
		counter("headgate_redis_node_refusals_total", "Calls not made because the circuit breaker of their node was open.",
			func(s Stats) float64 { return float64(s.NodeRefused) }),
		counter("headgate_redis_pool_timeouts_total", "Waits for a connection that ended in a timeout.",
			func(s Stats) float64 { return float64(s.PoolTimeouts) }),
		counter("headgate_redis_script_calls_total", "Calls of the script that decides.",
			func(s Stats) float64 { return float64(s.Calls) }),
		counter("headgate_redis_counted_slices_total", "Slices of requests that were counted by INCRBY, without the "+
			"script.", func(s Stats) float64 { return float64(s.Counted) }),
		counter("headgate_redis_script_loads_total", "Script calls that had to send the text of the script.",
			func(s Stats) float64 { return float64(s.NoScript) }),
		counter("headgate_redis_refunds_total", "Refunds on a Cluster: what a refused request over several slots took from "+
			"the slots that admitted it, given back.", func(s Stats) float64 { return float64(s.Refunds) }),
		counter("headgate_redis_refunds_late_total", "Refunds that came too late to give everything back.",
			func(s Stats) float64 { return float64(s.RefundsLate) }),
		counter("headgate_redis_refunds_lost_total", "Refunds that failed: the units count until their window ends.",
			func(s Stats) float64 { return float64(s.RefundsLost) }),
		gauge("headgate_redis_refunds_pending", "Refunds under way, at most 4,096.",
			func(s Stats) float64 { return float64(s.RefundsPending) }),
		gauge("headgate_redis_refunds_pending_bytes", "Memory of refunds under way, at most 4 MiB.",
			func(s Stats) float64 { return float64(s.RefundBytes) }),
		counter("headgate_redis_retries_total", "Script calls repeated because the first one is known to have had no effect.",
			func(s Stats) float64 { return float64(s.Retries) }),
	}
}
