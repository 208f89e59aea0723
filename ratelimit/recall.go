package ratelimit

import "github.com/headgate-rls/headgate/descriptors"

// A Recall keeps what rules match for the descriptors of a request that is asked again and again and does not change.
// It keeps it for two sets of rules. The zero Recall is usable, by one goroutine at a time.
type Recall struct {
	of [2]matched
}

// matched is what a set of rules matches for the first descriptors.
type matched struct {
	set     *descriptors.Set
	matches []descriptors.Match
}

// find returns the place for a set's matches; nil if there is none.
func (r *Recall) find(set *descriptors.Set) *matched {
	for i := range r.of {
		if r.of[i].set == set {
			return &r.of[i]
		}
	}
	return nil
}

// recall sets the match of descriptor i as it was before, if the request keeps it.
func (c *call) recall(set *descriptors.Set, i int) bool {
	if c.req.Recall == nil {
		return false
	}
	r := c.req.Recall.find(set)
	if r == nil || i >= len(r.matches) {
		return false
	}
	c.decisions[i].match = r.matches[i]
	return true
}

// keepMatch has the request keep the match of descriptor i.
func (c *call) keepMatch(set *descriptors.Set, i int) {
	all := c.req.Recall
	if all == nil {
		return
	}
	r := all.find(set)
	if r == nil {
		all.of[1] = all.of[0]
		all.of[0] = matched{set, make([]descriptors.Match, 0, len(c.decisions))}
		r = &all.of[0]
	}
	if i == len(r.matches) {
		r.matches = append(r.matches, c.decisions[i].match)
	}
}
