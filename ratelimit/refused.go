package ratelimit

import (
	"hash/maphash"
	"sync"

	"github.com/headgate-rls/headgate/limit"
)

// maxRefusedKeys bounds the keys that are remembered: about 4 MiB.
const maxRefusedKeys = 100_000

// refusedKeys are those that this process has refused, until their windows end, as the local cache of
// envoyproxy/ratelimit has them. It is asked about refusals alone.
type refusedKeys struct {
	seed maphash.Seed

	mu    sync.Mutex
	until map[uint64]limit.Instant
}

func newRefusedKeys() *refusedKeys {
	return &refusedKeys{seed: maphash.MakeSeed(), until: map[uint64]limit.Instant{}}
}

// knows reports whether the key of an op that had no room was refused before. It remembers the refusal, and has a
// question, which takes nothing, pass if there was none.
func (r *refusedKeys) knows(op *limit.Op, out *limit.Outcome, at limit.Instant) bool {
	if op.Limit.Algorithm() != limit.FixedWindow {
		return false
	}
	key := maphash.Comparable(r.seed, op.Key)
	r.mu.Lock()
	defer r.mu.Unlock()
	until, known := r.until[key]
	known = known && at < until
	switch {
	case known:
	case op.Cost == 0 && op.Limit.Max() > 0:
		out.Admitted = true
	default:
		r.makeRoom()
		r.until[key] = at.Add(out.Reset)
	}
	return known
}

// makeRoom forgets any key where there is no room for one more.
func (r *refusedKeys) makeRoom() {
	if len(r.until) < maxRefusedKeys {
		return
	}
	for key := range r.until {
		delete(r.until, key)
		return
	}
}
