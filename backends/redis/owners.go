package redis

import (
	"sync/atomic"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// owners is what is known of which node of a Cluster has a slot. The calls themselves
// show it: the driver hands them to a node, and to another one after a redirection.
type owners struct {
	bySlot [slots]atomic.Pointer[node] // nil: unknown
	nodes  atomic.Uint32               // that have numbers
}

// note notes that a node was asked about a slot. The first call gives a node its number, from 1. A node that has only
// been a replica has none.
func (o *owners) note(slot int, n *node) {
	if n.number.Load() == 0 {
		n.number.CompareAndSwap(0, o.nodes.Add(1)) // else a number is skipped
	}
	if known := &o.bySlot[slot]; known.Load() != n { // all cores read it
		known.Store(n)
	}
}

// of returns the set of nodes that decide a request: see [backends.Partitioned].
func (o *owners) of(k *keys, req *limit.Request) (set uint64) {
	for i := range req.Ops {
		n := o.bySlot[k.slotOf(&req.Ops[i], k.told(req.At))].Load()
		if n == nil {
			return backends.AnyServer
		}
		set |= 1 << (n.number.Load() % 64)
	}
	return set
}
