package redis

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// ends records until when keys live at least, by a monotonic clock. It is bounded: of the keys that share two places
// it keeps those that expire last. If a key is mistaken for another one, the reply shows that it was new.
type ends struct {
	seed  maphash.Seed
	wall  func() time.Time
	start time.Time
	keys  []atomic.Uint64 // 24 bits of the hash, and the ms
}

const (
	endsKept = 1 << 18 // 2 MiB
	endBits  = 40      // 34 years
)

func newEnds(wall func() time.Time) *ends {
	return &ends{seed: maphash.MakeSeed(), wall: wall, start: wall(), keys: make([]atomic.Uint64, endsKept)}
}

func (e *ends) now() time.Duration     { return e.wall().Sub(e.start) }
func (e *ends) hash(key []byte) uint64 { return maphash.Bytes(e.seed, key) }

// places returns those of a key, and what they say of it: until when it lives, in ms, or 0.
func (e *ends) places(hash uint64) (places [2]*atomic.Uint64, until [2]uint64) {
	for i := range places {
		places[i] = &e.keys[hash%endsKept^uint64(i)]
		if v := places[i].Load(); v>>endBits == hash>>endBits {
			until[i] = v & (1<<endBits - 1)
		}
	}
	return places, until
}

// after reports whether a key is known to live until then.
func (e *ends) after(hash uint64, then time.Duration) bool {
	_, until := e.places(hash)
	return max(until[0], until[1]) >= uint64(then.Milliseconds())
}

// keep notes until when a key lives.
func (e *ends) keep(hash uint64, until time.Duration) {
	places, known := e.places(hash)
	place := places[0]
	const end = 1<<endBits - 1
	if known[0] == 0 && (known[1] > 0 || places[1].Load()&end < place.Load()&end) {
		place = places[1]
	}
	place.Store(hash>>endBits<<endBits | uint64(until.Milliseconds()))
}
