package memory

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

var _ backends.Lister = (*Backend)(nil)

// List implements [backends.Lister]: keys in the order of their hashes, shard by shard. Nobody waits
// for longer than it takes to copy the pointers of a shard.
func (b *Backend) List(ctx context.Context, after string, n int) (keys []limit.Key, next string, err error) {
	at, from := 0, uint32(0)
	if after != "" {
		last, err := strconv.ParseUint(after, 16, 32)
		if err != nil || len(after) != 8 {
			return nil, "", fmt.Errorf("%w: nothing was listed up to %.20q", backends.ErrInvalid, after)
		}
		if at, from = b.index(uint32(last)), uint32(last)+1; from == 0 {
			at++
		}
	}
	for ; at < len(b.shards); at, from = at+1, 0 {
		if err := ctx.Err(); err != nil {
			return nil, "", fmt.Errorf("%w: %w", backends.ErrUnavailable, err)
		}
		found := b.shards[at].from(from)
		for i, e := range found {
			if len(keys) >= n && e.hash != found[i-1].hash {
				return keys, fmt.Sprintf("%08x", found[i-1].hash), nil
			}
			keys = append(keys, e.name())
		}
		if last := len(found) - 1; len(keys) >= n && last >= 0 {
			return keys, fmt.Sprintf("%08x", found[last].hash), nil
		}
	}
	return keys, "", nil
}

// from returns the entries whose hashes are not below one, sorted by them. Only their keys and
// hashes, which never change, may be read without the lock.
func (s *shard) from(hash uint32) []*entry {
	s.mu.Lock()
	found := slices.Clone(s.queue)
	s.mu.Unlock()
	found = slices.DeleteFunc(found, func(e *entry) bool { return e.hash < hash })
	sort.Slice(found, func(i, j int) bool { return found[i].hash < found[j].hash })
	return found
}
