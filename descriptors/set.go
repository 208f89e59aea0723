package descriptors

import (
	"maps"
	"slices"
)

// A Set is the compiled rules of every domain. It is immutable.
type Set struct {
	domains map[string]*domain
	first   *domain // one of them, for those who have one: it needs no look-up. Nil if there are none
	absent  *absent // nil if domains without rules are not limited
	rules   []*Rule
	hash    uint64

	ids   int     // all IDs are below
	free  []int   // the IDs that no rule has
	added []*Rule // that the set which this one was made of does not have

	// If the set was made by Rebuild:
	branches   []branch
	line, from *int   // what stands for this set, and for the one that it was made of
	kept       []span // of the rules of that set
}

// Hash returns a number below 2^52 that stands for the sources that the set was
// loaded from: it is the same for the same contents, whatever files they are in.
func (s *Set) Hash() uint64 { return s.hash }

// A Match is what [Set.Match] finds for one descriptor.
type Match struct {
	// Domain reports whether the set has rules for the domain at all.
	Domain bool
	// Rule is the rule that applies, nil if none does.
	Rule *Rule
	// Group is the counters' group (limit.Key.Group), set if Rule has limits
	// or a Concurrency.
	Group string
}

// Rules returns all rules of the set, in file order; a file's resources follow its descriptors.
func (s *Set) Rules() []*Rule { return s.rules }

// IDs returns how many IDs the set's rules have room in: each [Rule.ID] is below it. It is the
// number of rules, unless the set was made by [Rebuild].
func (s *Set) IDs() int { return s.ids }

// Domains returns the names of the set's domains in alphabetical order.
func (s *Set) Domains() []string { return slices.Sorted(maps.Keys(s.domains)) }

// A domain has the root of one domain's tree, and its resources.
type domain struct {
	name      string
	root      *level         // nil if the domain has no rules
	resources *resourceIndex // nil if it has no resources
}

// absent is a rule that matches every descriptor of domains without rules.
type absent struct {
	domains DomainPatterns
	rule    *Rule
	group   string
}

// absentOf returns the first rule of a domain, which stands for those that have none.
func absentOf(domains DomainPatterns, rules []*Rule, name string) *absent {
	for _, r := range rules {
		if r.Domain == name {
			return &absent{domains: domains, rule: r, group: r.group([]Entry{{Key: name}})}
		}
	}
	return nil
}

// match finds the rule of a domain without rules.
func (a *absent) match(domain string, m *Match) {
	if a != nil && a.domains.Has(domain) {
		m.Domain, m.Rule, m.Group = true, a.rule, a.group
	}
}

// A level has the rules below one node, by what they match.
type level struct {
	exact     map[Entry]*node  // key and value as they are
	wild      *wildcards       // a * in key or value; nil means none
	wildNodes []*node          // of wild, by number
	bare      map[string]*node // any value of the key
	first     string           // one of bare: most levels have one, which needs no look-up
	firstNode *node
	addresses addresses // nil: no rule has networks
}

// A node is one rule's place in the tree.
type node struct {
	rule *Rule  // nil if nothing applies to descriptors that end here
	next *level // nil if there are no rules below
	// except are the addresses that the node is not for; nil if there are none.
	except *networks
}

// addresses are the rules of a level that have networks, by key. It is not nil if a rule of the level has an except.
type addresses map[string]*networks
