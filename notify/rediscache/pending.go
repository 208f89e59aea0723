package rediscache

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/headgate-rls/headgate/notify/pgstore"
)

// pending is what is done behind the answers.
type pending struct {
	mu       sync.Mutex
	counts   map[string]pgstore.Count // by user: what the database does not have yet
	removals map[string]struct{}      // users whose hash is to be removed
}

func newPending() pending {
	return pending{counts: map[string]pgstore.Count{}, removals: map[string]struct{}{}}
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
	if there && cmp.Or(cmp.Compare(old.Version, c.Version), cmp.Compare(old.StartUs, c.StartUs),
		cmp.Compare(old.Count, c.Count)) >= 0 {
		return
	}
	p.counts[c.UserID] = c
}

func (p *pending) addRemoval(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.removals[user]; there || len(p.removals) < maxPending {
		p.removals[user] = struct{}{}
	}
}

// take returns what there is to do, and begins anew.
func (p *pending) take() (counts []pgstore.Count, removals []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts, removals = slices.Collect(maps.Values(p.counts)), slices.Collect(maps.Keys(p.removals))
	clear(p.counts)
	clear(p.removals)
	return counts, removals
}

func (p *pending) size() (counts, removals int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.counts), len(p.removals)
}
