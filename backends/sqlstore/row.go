package sqlstore

import (
	"bytes"
	"slices"

	"github.com/headgate-rls/headgate/limit"
)

// A row is what is written under one key.
type row struct {
	key   []byte
	state []byte
	at    int64 // these three are for people who read the table
	n, m  int64
	ends  limit.Instant // when the row may go

	add, gone []part // of a log: what is written beside it, and deleted
}

// A part has old records of a log, up to an instant.
type part struct {
	key   []byte
	last  int64
	state []byte
}

// counterKey is the key of a counter's row: two different counters have different ones. It begins
// with a digit.
func counterKey(k limit.Key) []byte {
	b := make([]byte, 0, len(k.Group)+len(k.Limit)+4)
	return append(limit.AppendPart(b, k.Group), k.Limit...)
}

// position is where a key is among sorted ones, or -1.
func position(keys [][]byte, key []byte) int {
	i, ok := slices.BinarySearchFunc(keys, key, bytes.Compare)
	if !ok {
		return -1
	}
	return i
}
