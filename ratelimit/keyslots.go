package ratelimit

import "sync/atomic"

// keySlots keep slotBits bits for each key, in a fixed number of slots. A key that finds its slot taken takes it over:
// it was used last. The other bits of a slot are of the key's hash.
type keySlots []atomic.Uint64

const slotBits = 40

// slot returns the slot of a key with a hash, and the bits of the hash that tell it from others there.
func (s keySlots) slot(hash uint64) (slot *atomic.Uint64, tag uint64) {
	return &s[hash%uint64(len(s))], hash >> slotBits << slotBits
}

// kept returns the bits that a slot's value has for the key with a tag; false if it is another key's.
func kept(value, tag uint64) (bits uint64, ok bool) {
	return value << (64 - slotBits) >> (64 - slotBits), value>>slotBits<<slotBits == tag
}
