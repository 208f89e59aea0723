package rediscache

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/notify/pgstore"
)

// pending is what is done behind the answers.
type pending struct {
	mu       sync.Mutex
	counts   map[string]pgstore.Count // by user: what the database does not have yet
	removals map[string]struct{}      // users whose hash is to be removed
}

// maxPending bounds the users in each of both. A count that finds no room is dropped: the
// next one of the user has it. A removal that finds none is left to the expiry of the hash,
// and to the next count of the user, which meets the newer version.
const maxPending = 100_000

// add notes a count, if it is newer than what there is.
func (p *pending) add(c pgstore.Count) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, there := p.counts[c.UserID]
	if !there && len(p.counts) >= maxPending {
		return
	}
	if there && (old.Version > c.Version || old.Version == c.Version && (old.StartUs > c.StartUs || old.StartUs == c.StartUs && old.Count >= c.Count)) {
		return
	}
	p.counts[c.UserID] = c
}

func (p *pending) addRemoval(user string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.removals[user]; !there && len(p.removals) >= maxPending {
		return false
	}
	p.removals[user] = struct{}{}
	return true
}

// take returns what there is to do, and begins anew.
func (p *pending) take() (counts []pgstore.Count, removals []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.counts {
		counts = append(counts, c)
	}
	for user := range p.removals {
		removals = append(removals, user)
	}
	clear(p.counts)
	clear(p.removals)
	return counts, removals
}

func (p *pending) size() (counts, removals int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.counts), len(p.removals)
}

const (
	syncSlice    = 1000 // users in one statement
	syncWithin   = 5 * time.Second
	removalDelay = time.Second // between attempts to remove hashes
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
			c.behind(true)
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

// behind writes the counts to the database, and removes hashes. What fails is done again.
func (c *Cache) behind(remove bool) {
	ctx, cancel := context.WithTimeout(context.Background(), syncWithin)
	defer cancel()
	counts, removals := c.pending.take()
	for len(counts) > 0 {
		slice := counts[:min(len(counts), syncSlice)]
		err := c.store.Sync(ctx, slice, func(user string, version int64) {
			if err := c.dropOld(ctx, user, version); err != nil {
				c.pending.addRemoval(user)
			}
		})
		if err != nil {
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
	failed := !remove
	for _, user := range removals {
		if !failed && c.remove(ctx, user) == nil {
			continue
		}
		failed = true // the others would fail as well
		c.pending.addRemoval(user)
	}
}
