package redis

import (
	"sync/atomic"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// owners is what is known of which node of a Cluster has a slot. The calls themselves
// show it: the driver hands them to a node, and to another one after a redirection.
type owners struct {
	bySlot [slots]atomic.Uint32 // the number of the node, from 1; 0 is unknown
	nodes  atomic.Uint32        // that have numbers
}

// A nodeNumber is that of a node from its first call on. A node that has been none but a
// replica has none.
type nodeNumber struct{ atomic.Uint32 }

// note notes that a node was asked about a slot.
func (o *owners) note(slot int, node *nodeNumber) {
	n := node.Load()
	if n == 0 {
		node.CompareAndSwap(0, o.nodes.Add(1)) // else a number is skipped
		n = node.Load()
	}
	if known := &o.bySlot[slot]; known.Load() != n { // all cores read it
		known.Store(n)
	}
}

// of returns the set of nodes that decide a request: see [backends.Partitioned].
func (o *owners) of(k *keys, req *limit.Request) (set uint64) {
	for i := range req.Ops {
		n := o.bySlot[k.slotOf(&req.Ops[i], k.told(req.At))].Load()
		if n == 0 {
			return backends.AnyServer
		}
		set |= 1 << (n % 64)
	}
	return set
}
