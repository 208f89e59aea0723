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

	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// keysTable prints how much memory a counter takes: of the heap after a collection, and of the process when what is
// free has been given back.
func (b *bench) keysTable(ctx context.Context) error {
	keys := b.storedKeys
	fmt.Printf("\nmemory of %d counters in memory, with groups of 24 bytes: bytes per counter\n\n%-16s %10s %10s\n", keys,
		"algorithm", "heap", "resident")
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.TokenBucket, limit.SlidingWindow} {
		store := memory.New(memory.Config{})
		heap, resident, err := memoryInUse()
		if err != nil {
			return err
		}
		fill(ctx, store, a, keys)
		heapAfter, residentAfter, err := memoryInUse()
		if err != nil {
			return err
		}
		fmt.Printf("%-16v %10d %10d\n", a, (heapAfter-heap)/keys, (residentAfter-resident)/keys)
		if err := store.Close(); err != nil {
			return fmt.Errorf("close the store: %w", err)
		}
	}
	return nil
}

// fill takes a unit under each of so many keys.
func fill(ctx context.Context, store *memory.Backend, a limit.Algorithm, keys int) {
	l := limit.MustNew(limit.Spec{Algorithm: a, Max: 100, Window: time.Hour})
	reqs, out := []limit.Request{{At: limit.InstantOf(time.Now()), Ops: make([]limit.Op, 1)}}, make([]limit.Verdict, 1)
	for i := range keys {
		group := fmt.Sprintf("1:d4:user13:u%012d", i)
		reqs[0].Ops[0] = limit.Op{Key: limit.Key{Group: group, Limit: a.KeyLetter()}, Limit: l, Cost: 1}
		store.Take(ctx, reqs, out)
	}
}

// memoryInUse returns what the heap has, and what the process takes, in bytes.
func memoryInUse() (heap, resident int, err error) {
	debug.FreeOSMemory() // collects, too
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of the process: %w", err)
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0, 0, fmt.Errorf("/proc/self/statm is %q", data)
	}
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0, 0, fmt.Errorf("/proc/self/statm: %w", err)
	}
	return int(m.HeapAlloc), pages * os.Getpagesize(), nil
}
