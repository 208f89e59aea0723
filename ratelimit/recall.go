package ratelimit

import "github.com/headgate-rls/headgate/descriptors"

// A Recall caches which rules match the descriptors of a request that is sent repeatedly and does not change. It has
// room for two sets of rules. The zero Recall is ready to use, by one goroutine at a time.
type Recall struct {
	of [2]matched
}

// matched has the matches of the first descriptors in a set of rules.
type matched struct {
	set     *descriptors.Set
	matches []descriptors.Match
}

// find returns the cached matches in a set of rules, or nil.
func (r *Recall) find(set *descriptors.Set) *matched {
	for i := range r.of {
		if r.of[i].set == set {
			return &r.of[i]
		}
	}
	return nil
}

// recall sets the match of descriptor i from the cache, and reports whether the cache has it.
func (c *Call) recall(set *descriptors.Set, i int) bool {
	if c.Request.Recall == nil {
		return false
	}
	r := c.Request.Recall.find(set)
	if r == nil || i >= len(r.matches) {
		return false
	}
	c.Decisions[i].match = r.matches[i]
	return true
}

// keepMatch caches the match of descriptor i.
func (c *Call) keepMatch(set *descriptors.Set, i int) {
	all := c.Request.Recall
	if all == nil {
		return
	}
	r := all.find(set)
	if r == nil {
		all.of[1] = all.of[0]
		all.of[0] = matched{set, make([]descriptors.Match, 0, len(c.Decisions))}
		r = &all.of[0]
	}
	if i == len(r.matches) {
		r.matches = append(r.matches, c.Decisions[i].match)
	}
}
