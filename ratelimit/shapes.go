package ratelimit

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Bounds of what is kept. All shapes take less than 1 MiB.
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
	domains sync.Map // name to *Domain

	full atomic.Bool

	mu    sync.Mutex
	count struct{ shapes, domains int }
}

// NewCoverage returns a coverage that has seen nothing.
func NewCoverage() *Coverage { return &Coverage{seed: maphash.MakeSeed()} }

// A Domain counts the calls about a domain that rules have.
type Domain struct {
	Name string
	// Covered counts calls of which a rule matched a descriptor, Uncovered those of which none did.
	Covered, Uncovered metrics.Counter

	rest Shape // what has no room
}

// A Shape is what has been seen of descriptors with the same keys in a domain.
type Shape struct {
	Domain string
	In     *Domain
	Keys   []string // nil: all shapes of the domain that have no room
	// Example is the name of the first descriptor, as descriptors.Name has it; empty if that is long.
	Example string
	// Matched and Missed count descriptors that a rule matches, and those that none does.
	Matched, Missed metrics.Counter
	First           int64 // when the first one was seen, in µs since 1970
	// Named: the log has named the shape as one that no rule matches.
	Named atomic.Bool

	last atomic.Int64
}

// Seen notes that a descriptor was seen at an instant, in µs since 1970.
func (s *Shape) Seen(now int64) {
	const second = 1_000_000
	if now-s.last.Load() >= second { // most find it written
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
			if d, ok := c.domains.Load(domain); ok {
				return &d.(*Domain).rest
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
	in := c.domain(domain, now)
	if c.count.shapes == maxShapes || size > maxBytes {
		return &in.rest
	}
	c.count.shapes++
	c.full.Store(c.count.shapes == maxShapes)
	s := &Shape{Domain: strings.Clone(domain), In: in, Keys: make([]string, len(entries)), First: now}
	for i := range entries {
		s.Keys[i] = strings.Clone(entries[i].Key)
	}
	if name := descriptors.Name(domain, entries); len(name) <= maxExample {
		s.Example = name
	}
	c.slots[i].Store(s)
	return s
}

// domain returns a domain, or the one of all that have no room. The caller holds mu.
func (c *Coverage) domain(name string, now int64) *Domain {
	d, ok := c.domains.Load(name)
	if !ok && c.count.domains == maxDomains {
		name = Others
		d, ok = c.domains.Load(name)
	}
	if !ok {
		made := &Domain{Name: strings.Clone(name)}
		made.rest.Domain, made.rest.In, made.rest.First = made.Name, made, now
		c.domains.Store(made.Name, made)
		c.count.domains++
		return made
	}
	return d.(*Domain)
}

// Shapes returns all shapes, ordered by domain and keys; those of all that have no room come last in their domain.
func (c *Coverage) Shapes() (list []*Shape) {
	for i := range c.slots {
		if s := c.slots[i].Load(); s != nil {
			list = append(list, s)
		}
	}
	c.domains.Range(func(_, d any) bool {
		if rest := &d.(*Domain).rest; rest.Matched.Value()+rest.Missed.Value() > 0 {
			list = append(list, rest)
		}
		return true
	})
	slices.SortFunc(list, func(a, b *Shape) int {
		if by := strings.Compare(a.Domain, b.Domain); by != 0 {
			return by
		}
		if (a.Keys == nil) != (b.Keys == nil) {
			return len(b.Keys) - len(a.Keys)
		}
		return slices.Compare(a.Keys, b.Keys)
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
		if s.Matched.Value() > 0 {
			s.Named.Store(false)
		}
	}
}
