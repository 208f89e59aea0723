package prefetch

import "github.com/headgate-rls/headgate/limit"

// For tests outside the package: a store imports the layers, and so no test inside a layer can import it.
var NewLimit, NewOp, Sharable = newLimit, op, sharable

// Held returns how many units are held for an op.
func (b *Backend) Held(o *limit.Op) int64 {
	if h := b.shard(&o.Key).find(o, false); h != nil {
		return h.left
	}
	return 0
}
