package rediscache

import (
	"context"
	"slices"
	"time"
)

const (
	syncSlice    = 1000 // users in one statement
	syncWithin   = 5 * time.Second
	removalDelay = time.Second // between attempts to remove hashes
	removalSlice = 16          // hashes that are removed at once

	lastTries, lastPause = 5, 50 * time.Millisecond // at the end, for counts whose rows others hold
)

// Run does what is to be done behind the answers, until ctx ends, and then once more. Nobody
// may send after that.
func (c *Cache) Run(ctx context.Context) {
	tick := time.NewTicker(c.delay)
	defer tick.Stop()
	var tried time.Time
	for {
		select {
		case <-ctx.Done():
			c.grows.Wait() // within moveWithin: nobody sends any more
			answered := c.behind(true)
			for range lastTries { // other gateways may have held rows for a moment
				if counts, _ := c.pending.size(); counts == 0 || !answered {
					return
				}
				time.Sleep(lastPause)
				answered = c.behind(false)
			}
			return
		case <-tick.C:
			again := time.Since(tried) >= removalDelay
			if again {
				tried = time.Now()
			}
			c.behind(again)
		}
	}
}

// behind writes the counts to the database, and removes hashes. What fails is done again. It reports whether
// the database has answered.
func (c *Cache) behind(remove bool) (answered bool) {
	answered = true
	ctx, cancel := context.WithTimeout(context.Background(), syncWithin)
	defer cancel()
	counts, removals := c.pending.take()
	for len(counts) > 0 {
		slice := counts[:min(len(counts), syncSlice)]
		err := c.store.Sync(ctx, slice, func(user string, version int64) {
			if err := c.dropOld(ctx, user, version); err != nil {
				c.pending.addRemoval(user)
			}
		}, c.pending.add)
		if err != nil {
			answered = false
			for _, count := range counts {
				c.pending.add(count)
			}
			if allowed, _ := c.often.Allow(); allowed {
				c.log.Warn("the counts of Redis are not in the database yet", "users", len(counts), "error", err)
			}
			break
		}
		counts = counts[len(slice):]
	}
	for slice := range slices.Chunk(removals, removalSlice) {
		left := slice
		if remove {
			left = c.removeAll(ctx, slice)
			remove = len(left) < len(slice) // else the others would fail as well
		}
		for _, user := range left {
			c.pending.addRemoval(user)
		}
	}
	return answered
}
