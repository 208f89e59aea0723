package backends

// Into how many parts, each with a lock of its own, stores and layers in memory divide their keys.
const (
	// MaxShards is the largest number of shards: as many as a uint64 has bits, so that
	// one can be a set of them.
	MaxShards = 64
	// MinShardKeys is how many keys a shard has room for at least.
	MinShardKeys = 1024
)

// ShardCount returns the number of shards for so many keys, a power of two.
func ShardCount(keys int) int {
	n := 1
	for n < MaxShards && keys/(2*n) >= MinShardKeys {
		n *= 2
	}
	return n
}
