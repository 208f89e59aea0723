// Package shards says into how many parts, each with a lock of its own, stores
// and layers in memory divide their keys.
package shards

const (
	// Max is the largest number of shards: as many as a uint64 has bits, so that
	// one can be a set of them.
	Max = 64
	// MinKeys is how many keys a shard has room for at least.
	MinKeys = 1024
)

// Count returns the number of shards for so many keys, a power of two.
func Count(keys int) int {
	n := 1
	for n < Max && keys/(2*n) >= MinKeys {
		n *= 2
	}
	return n
}
