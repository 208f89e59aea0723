package main

import (
	"context"
	"fmt"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"
)

// logSizes are entries per key. Calls may add a tenth.
func logSizes() []int { return []int{100, 1_000, 6_000} }

func logHeadroom(entries int) int { return entries / 10 }

func logCase(entries, calls int) benchCase {
	room := logHeadroom(entries)
	return benchCase{
		name: fmt.Sprintf("redis log of %d", entries), redis: true, descriptors: 1, keys: max(1, calls/room),
		limit: fmt.Sprintf("limits: [{algorithm: sliding_log, limit: %d, window: 1h}]", entries+room),
	}
}

func (b *bench) logTable(ctx context.Context) error {
	if b.redis == nil {
		return nil
	}
	fmt.Print("\nsliding logs in Redis, each call admitted by a log of so many live entries; published: " +
		"about 80 bytes per entry\n\n")
	fmt.Printf("%-8s %8s %9s %9s %9s %12s\n", "layout", "entries", "CPU µs", "+ Redis", "sum", "bytes/entry")
	for _, layout := range []string{"list", "zset"} {
		for _, n := range logSizes() {
			r, size, err := b.measureLog(ctx, n, layout)
			if err != nil {
				return fmt.Errorf("%s of %d: %w", layout, n, err)
			}
			fmt.Printf("%-8s %8d %9.1f %9.1f %9.1f %12.1f\n", layout, n, r.cpu(0), r.cpu(1), r.cpu(0)+r.cpu(1), size)
		}
	}
	return b.redis.client.FlushAll(ctx).Err()
}

// measureLog returns what a call costs, and bytes per entry.
func (b *bench) measureLog(ctx context.Context, entries int, layout string) (result, float64, error) {
	c := logCase(entries, b.logCalls)
	c.layout = layout
	client := b.redis.client
	if err := client.FlushAll(ctx).Err(); err != nil {
		return result{}, 0, err
	}
	t, err := b.start(ctx, c)
	if err != nil {
		return result{}, 0, err
	}
	defer t.close()
	t.load.check = admitted
	all := t.load.requests
	t.load.requests = all[:1]
	if _, err := t.load.run(ctx, times(entries)); err != nil {
		return result{}, 0, err
	}
	key, err := copyLog(ctx, client, len(all))
	if err != nil {
		return result{}, 0, err
	}
	size, err := client.MemoryUsage(ctx, key, 0).Result() // 0: look at all entries
	if err != nil {
		return result{}, 0, err
	}
	t.load.requests = all
	r, err := t.measure(ctx, times(len(all)*logHeadroom(entries)))
	return r, float64(size) / float64(entries), err
}

func admitted(response []byte) error {
	var r rls.RateLimitResponse
	if err := proto.Unmarshal(response, &r); err != nil {
		return err
	}
	if r.OverallCode != rls.RateLimitResponse_OK {
		return fmt.Errorf("a call was answered %v", r.OverallCode)
	}
	return nil
}

// copyLog copies the only key, the first client's, to those of n-1 others, and
// returns it.
func copyLog(ctx context.Context, client *redis.Client, n int) (string, error) {
	found, err := client.Keys(ctx, "*").Result()
	if err != nil {
		return "", err
	}
	if len(found) != 1 || !strings.Contains(found[0], clientName(0)) {
		return "", fmt.Errorf("want one key, of %s, not %q", clientName(0), found)
	}
	pipe := client.Pipeline()
	for i := 1; i < n; i++ {
		pipe.Copy(ctx, found[0], strings.Replace(found[0], clientName(0), clientName(i), 1), 0, false)
	}
	_, err = pipe.Exec(ctx)
	return found[0], err
}
