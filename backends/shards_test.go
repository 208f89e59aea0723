package backends

import "testing"

func TestShardCountIsAPowerOfTwoThatKeepsShardsLarge(t *testing.T) {
	for keys, want := range map[int]int{0: 1, 1: 1, 2047: 1, 2048: 2, 4095: 2, 4096: 4, 65_535: 32, 65_536: 64,
		100_000_000: 64} {
		if got := ShardCount(keys); got != want {
			t.Errorf("%d keys: %d shards, want %d", keys, got, want)
		}
	}
}
