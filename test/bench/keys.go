package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// keysTable prints how much memory a counter takes, in memory and in Redis: what is in use, and what the process has
// when what is free has been given back. Of databases it prints how large their files are.
func (b *bench) keysTable(ctx context.Context) error {
	if err := b.keysInMemory(ctx); err != nil {
		return err
	}
	if b.redis != nil {
		if err := b.keysInRedis(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("\nfiles of %d counters in databases: bytes per counter\n\n%-28s %10s %10s\n", b.storedKeys, "counter",
		"used once", "again")
	return eachLimitDB("keys", func(db *limitDB) error { return b.keysInDatabase(ctx, db) })
}

// keyedAlgorithms are those whose states have a size.
var keyedAlgorithms = []limit.Algorithm{limit.FixedWindow, limit.TokenBucket, limit.SlidingWindow}

func (b *bench) keysInMemory(ctx context.Context) error {
	keys := b.storedKeys
	fmt.Printf("\nmemory of %d counters in memory, with groups of 24 bytes: bytes per counter\n\n%-16s %10s %10s\n", keys,
		"algorithm", "heap", "resident")
	for _, a := range keyedAlgorithms {
		store := memory.New(memory.Config{})
		heap, resident := memoryInUse()
		if err := fill(ctx, store, limit.InstantOf(time.Now()), a, keys); err != nil {
			return err
		}
		heapAfter, residentAfter := memoryInUse()
		fmt.Printf("%-16v %10d %10d\n", a, (heapAfter-heap)/keys, (residentAfter-resident)/keys)
		if err := store.Close(); err != nil {
			return fmt.Errorf("close the store: %w", err)
		}
	}
	return nil
}

// keysInRedis fills Redis with counters, and with those that envoyproxy/ratelimit would write.
func (b *bench) keysInRedis(ctx context.Context) error {
	keys := b.storedKeys
	fmt.Printf("\nmemory of %d counters in Redis: bytes per counter\n\n%-28s %10s %10s\n", keys, "counter", "in use",
		"resident")
	row := func(name string, fill func() error) error {
		used, resident, err := b.redis.memoryInUse(ctx)
		if err != nil {
			return err
		}
		if err := fill(); err != nil {
			return err
		}
		usedAfter, residentAfter, err := b.redis.memoryInUse(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%-28s %10d %10d\n", name, (usedAfter-used)/keys, (residentAfter-resident)/keys)
		return b.redis.client.FlushAll(ctx).Err()
	}
	store, err := b.openBackend(ctx, 20)
	if err != nil {
		return err
	}
	defer store.Close()
	for _, a := range keyedAlgorithms {
		if err := row("redis "+a.String(), func() error { return fill(ctx, store, 0, a, keys) }); err != nil {
			return err
		}
	}
	return row("as envoyproxy/ratelimit", func() error { return b.redis.fillAsReference(ctx, keys) })
}

// keysInDatabase fills a database with counters of each algorithm, and uses each of them again.
func (b *bench) keysInDatabase(ctx context.Context, db *limitDB) error {
	if err := db.prepare(ctx); err != nil {
		return err
	}
	store, err := db.open("")
	if err != nil {
		return err
	}
	defer store.Close()
	for _, a := range keyedAlgorithms {
		var sizes [3]int
		for i := range sizes {
			if i > 0 {
				if err := fill(ctx, store, 0, a, b.storedKeys); err != nil {
					return err
				}
			}
			if err := db.raw.QueryRowContext(ctx, db.size).Scan(&sizes[i]); err != nil {
				return fmt.Errorf("size of the table in %s: %w", db.name, err)
			}
		}
		fmt.Printf("%-28s %10d %10d\n", db.name+" "+a.String(), (sizes[1]-sizes[0])/b.storedKeys,
			(sizes[2]-sizes[0])/b.storedKeys)
	}
	return nil
}

// fillAsReference writes counters with the names and values of envoyproxy/ratelimit.
func (s *redisServer) fillAsReference(ctx context.Context, keys int) error {
	for from := 0; from < keys; from += fillSlice {
		pipe := s.client.Pipeline()
		for i := from; i < min(from+fillSlice, keys); i++ {
			key := fmt.Sprintf("d_user_u%012d_%d", i, time.Now().Truncate(time.Hour).Unix())
			pipe.IncrBy(ctx, key, 1)
			pipe.Expire(ctx, key, time.Hour)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// memoryInUse returns what Redis has allocated, and what its process takes, in bytes.
func (s *redisServer) memoryInUse(ctx context.Context) (used, resident int, err error) {
	if err := s.client.Do(ctx, "memory", "purge").Err(); err != nil {
		return 0, 0, err
	}
	info, err := s.client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, 0, err
	}
	_, text, _ := strings.Cut(info, "used_memory:")
	text, _, _ = strings.Cut(text, "\r")
	if used, err = strconv.Atoi(text); err != nil {
		return 0, 0, fmt.Errorf("used_memory of Redis: %w", err)
	}
	return used, testenv.Resident(s.pid), nil
}

// fillSlice is how many counters are written in one trip.
const fillSlice = 64

// fill takes a unit under each of so many keys, at an instant; 0 is the store's.
func fill(ctx context.Context, store backends.Backend, at limit.Instant, a limit.Algorithm, keys int) error {
	l := limit.MustNew(limit.Spec{Algorithm: a, Max: 100, Window: time.Hour})
	reqs, out := make([]limit.Request, fillSlice), make([]limit.Verdict, fillSlice)
	for from := 0; from < keys; from += fillSlice {
		n := min(fillSlice, keys-from)
		for i := range n {
			key := limit.Key{Group: fmt.Sprintf("1:d4:user13:u%012d", from+i), Limit: a.KeyLetter()}
			reqs[i] = limit.Request{At: at, Ops: []limit.Op{{Key: key, Limit: l, Cost: 1}}}
		}
		store.Take(ctx, reqs[:n], out[:n])
		for i := range n {
			if out[i].Err != nil {
				return out[i].Err
			}
		}
	}
	return nil
}

// memoryInUse returns what the heap has, and what the process takes, in bytes.
func memoryInUse() (heap, resident int) {
	debug.FreeOSMemory() // collects, too
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), testenv.Resident(os.Getpid())
}
