package ratelimit

import (
	"hash/maphash"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Bounds of what is kept. All shapes take less than 1 MiB, and at most 5 more if they all count a lot.
const (
	maxShapes  = 1000
	maxDomains = 1000
	maxBytes   = 512  // of the domain and keys of a shape
	maxExample = 256  // of the name of a descriptor
	numSlots   = 2048 // a power of two
)

// Others is the name of the domain that stands for those that have no room.
const Others = "(others)"

// A Coverage counts which shapes of descriptors match a rule. A shape is a domain and the keys of a descriptor's
// entries, in order. It may be used concurrently, and is not copied.
type Coverage struct {
	slots   [numSlots]atomic.Pointer[Shape]
	seed    maphash.Seed
	domains sync.Map // name to the *Shape of what has no room in it

	full atomic.Bool

	mu    sync.Mutex
	count struct{ shapes, domains int }
}

// NewCoverage returns a coverage that has seen nothing.
func NewCoverage() *Coverage { return &Coverage{seed: maphash.MakeSeed()} }

// A Shape is what has been seen of descriptors with the same keys in a domain.
type Shape struct {
	Domain string
	Keys   []string // nil: all shapes of the domain that have no room
	// Example is the name of the first descriptor, as descriptors.Name has it; empty if that is long.
	Example string
	// Missed counts descriptors that no rule matches, Uncovered calls of which no rule matched any descriptor: a call
	// counts in one of its shapes.
	Missed, Uncovered metrics.Counter
	First             int64 // when the first one was seen, in µs since 1970
	// Named: the log has named the shape as one that no rule matches.
	Named atomic.Bool

	last atomic.Int64
	// Most calls have one descriptor, which a rule matches: alone. The others are matched and covered.
	alone, matched, covered metrics.Counter
}

// Matched returns how many descriptors a rule matched.
func (s *Shape) Matched() int64 { return s.alone.Value() + s.matched.Value() }

// Covered returns how many calls, of those that count in this shape, had a descriptor that a rule matched.
func (s *Shape) Covered() int64 { return s.alone.Value() + s.covered.Value() }

// Seen notes that a descriptor was seen at an instant, in µs since 1970.
func (s *Shape) Seen(now int64) {
	const second = 1_000_000
	// Most find it written. A clock may step back.
	if passed := now - s.last.Load(); passed >= second || passed <= -second {
		s.last.Store(now)
	}
}

// Last returns when a descriptor was seen last, to the second; the zero time if none was.
func (s *Shape) Last() (last time.Time) {
	if at := s.last.Load(); at > 0 {
		last = time.UnixMicro(at)
	}
	return last
}

func (s *Shape) is(domain string, entries []descriptors.Entry) bool {
	if s.Domain != domain || len(s.Keys) != len(entries) {
		return false
	}
	for i := range entries {
		if s.Keys[i] != entries[i].Key {
			return false
		}
	}
	return true
}

// Of returns the shape of a descriptor of a domain that rules have, which is seen at an instant.
func (c *Coverage) Of(domain string, entries []descriptors.Entry, now int64) *Shape {
	h := maphash.String(c.seed, domain)
	for i := range entries {
		h = h*31 + maphash.String(c.seed, entries[i].Key)
	}
	for i := h; ; i++ {
		s := c.slots[i%numSlots].Load()
		if s == nil && c.full.Load() { // a flood of new shapes takes no lock
			if rest, ok := c.domains.Load(domain); ok {
				return rest.(*Shape)
			}
		}
		if s == nil {
			return c.add(h, domain, entries, now)
		}
		if s.is(domain, entries) {
			return s
		}
	}
}

// add returns a new shape, or the one of all that have no room.
func (c *Coverage) add(h uint64, domain string, entries []descriptors.Entry, now int64) *Shape {
	size := len(domain)
	for i := range entries {
		size += len(entries[i].Key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := h % numSlots
	for ; ; i = (i + 1) % numSlots {
		s := c.slots[i].Load()
		if s == nil {
			break
		}
		if s.is(domain, entries) {
			return s
		}
	}
	rest := c.rest(domain, now)
	if c.count.shapes == maxShapes || size > maxBytes {
		return rest
	}
	c.count.shapes++
	c.full.Store(c.count.shapes == maxShapes)
	s := &Shape{Domain: strings.Clone(domain), Keys: make([]string, len(entries)), First: now}
	for i := range entries {
		s.Keys[i] = strings.Clone(entries[i].Key)
	}
	if name := descriptors.Name(domain, entries); len(name) <= maxExample {
		s.Example = name
	}
	c.slots[i].Store(s)
	return s
}

// rest returns the shape of what has no room in a domain, or in all domains that have no room. The caller holds mu.
func (c *Coverage) rest(domain string, now int64) *Shape {
	rest, ok := c.domains.Load(domain)
	if !ok && c.count.domains == maxDomains {
		domain = Others
		rest, ok = c.domains.Load(domain)
	}
	if !ok {
		made := &Shape{Domain: strings.Clone(domain), First: now}
		c.domains.Store(made.Domain, made)
		c.count.domains++
		return made
	}
	return rest.(*Shape)
}

// Shapes returns all shapes, ordered by domain and keys; those of all that have no room come last in their domain.
func (c *Coverage) Shapes() (list []*Shape) {
	for i := range c.slots {
		if s := c.slots[i].Load(); s != nil {
			list = append(list, s)
		}
	}
	c.domains.Range(func(_, s any) bool {
		if rest := s.(*Shape); rest.Matched()+rest.Missed.Value() > 0 {
			list = append(list, rest)
		}
		return true
	})
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i], list[j]
		if a.Domain != b.Domain {
			return a.Domain < b.Domain
		}
		if (a.Keys == nil) != (b.Keys == nil) {
			return len(a.Keys) > len(b.Keys)
		}
		return slices.Compare(a.Keys, b.Keys) < 0
	})
	return list
}

// LastAsked returns when a descriptor of a domain was seen last; the zero time if none was.
func (c *Coverage) LastAsked(domain string) (last time.Time) {
	for _, s := range c.Shapes() {
		if s.Domain == domain && s.Last().After(last) {
			last = s.Last()
		}
	}
	return last
}

// RulesChanged has the log name shapes again that a rule matched at some time: if none does any more, that is news.
func (c *Coverage) RulesChanged() {
	for _, s := range c.Shapes() {
		if s.Matched() > 0 {
			s.Named.Store(false)
		}
	}
}
