package redis

import "context"

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

// Warnings asks the servers about settings under which limits would not hold
// and returns a sentence for each. A server that does not answer, because
// the user may not ask or the server is away, gives none.
func (b *Backend) Warnings(ctx context.Context) (list []string) {
	found, _, _ := askVitals(ctx, b.client) // those that do not answer are missing
	for addr, v := range found {
		for _, w := range v.warnings {
			list = append(list, "Redis at "+addr+": "+w)
		}
	}
	return list
}
