package dynamodb

import (
	"context"
	"sync"

	"github.com/headgate-rls/headgate/limit"
)

// A cache remembers the items that were seen, and lets those who decide about a key in this process
// do so one after the other. What it remembers may be old: nobody answers by it alone.
//
// It has two generations. When the young one has grown to half of what is allowed, it becomes the
// old one, and the one before is dropped.
type cache struct {
	half int // bytes

	mu         sync.Mutex
	young, old map[limit.Key]*entry
	bytes      int // of the young ones
	oldBytes   int
}

// An entry is what is remembered of a key.
type entry struct {
	turn chan struct{} // holds one while somebody has it

	// These belong to who has the turn.
	known item
	race  race

	size int // of known, as counted; belongs to the cache
}

// entrySize is what an entry takes beside its key and its item, in bytes, roughly.
const entrySize = 300

func newCache(most int) *cache {
	return &cache{half: most / 2, young: map[limit.Key]*entry{}}
}

// take waits for the turn of a key.
func (c *cache) take(ctx context.Context, k limit.Key) (*entry, error) {
	e := c.entry(k)
	select {
	case e.turn <- struct{}{}:
		return e, nil
	default:
	}
	select {
	case e.turn <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// entry returns that of a key, which is among the young ones then.
func (c *cache) entry(k limit.Key) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.young[k]; ok {
		return e
	}
	e, ok := c.old[k]
	if !ok {
		e = &entry{turn: make(chan struct{}, 1)}
	}
	c.grow(entrySize + len(k.Group) + len(k.Limit) + e.size)
	c.young[k] = e
	return e
}

// grow counts bytes, and begins a new generation if there are too many.
func (c *cache) grow(n int) {
	if c.bytes += n; c.bytes > c.half {
		c.old, c.oldBytes = c.young, c.bytes
		c.young, c.bytes = map[limit.Key]*entry{}, 0
	}
}

// give gives a turn back. An entry that has grown counts as young wherever it is, and one that has
// shrunk as it was: generations may end early, and never late.
func (c *cache) give(e *entry) {
	n := e.known.size()
	c.mu.Lock()
	c.grow(max(0, n-e.size))
	e.size = n
	c.mu.Unlock()
	<-e.turn
}

// size returns how many bytes are remembered, roughly.
func (c *cache) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes + c.oldBytes
}
