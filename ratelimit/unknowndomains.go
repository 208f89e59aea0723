package ratelimit

import (
	"cmp"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// maxUnknown bounds the domains of callers that are kept: their names are the callers' text.
const maxUnknown = 100

// An UnknownDomain is what has been seen of a domain that no rules have. Its calls are not limited.
type UnknownDomain struct {
	Name        string // its beginning, if it is long; [Others] stands for those that have no room
	Calls       int64
	First, Last time.Time
	Caller      string // who sent the last call: the proxy's name, its certificate's identity, or "" without both
}

// unknownDomains are those that a process has seen. They may be used concurrently.
type unknownDomains struct {
	mu   sync.Mutex
	seen map[string]*UnknownDomain
}

// add counts a call.
func (u *unknownDomains) add(r *Request, now time.Time) {
	name := spell.Short(r.Domain)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen == nil {
		u.seen = map[string]*UnknownDomain{}
	}
	d := u.seen[name]
	if d == nil {
		if len(u.seen) >= maxUnknown {
			name = Others
		}
		if d = u.seen[name]; d == nil {
			d = &UnknownDomain{Name: strings.Clone(name), First: now}
			u.seen[d.Name] = d
		}
	}
	d.Calls++
	d.Last = now
	if caller := cmp.Or(r.Owner, r.Peer); caller != d.Caller {
		d.Caller = strings.Clone(caller)
	}
}

// UnknownDomains returns the domains that calls had and that no rules in force have, those with most calls first.
func (s *Service) UnknownDomains() (list []UnknownDomain) {
	known := map[string]bool{}
	if rules := s.Rules(); rules != nil {
		for _, name := range rules.Domains() {
			known[spell.Short(name)] = true
		}
	}
	u := &s.unknowns
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, d := range u.seen {
		if !known[name] {
			list = append(list, *d)
		}
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := &list[i], &list[j]
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name)) < 0
	})
	return list
}

// lacksDomain reports whether a call asks about descriptors of a domain that no rules have.
func (c *Call) lacksDomain() bool {
	asks := false
	for i := range c.Decisions {
		d := &c.Decisions[i]
		if d.match.Domain {
			return false
		}
		asks = asks || !d.returns
	}
	return asks
}

// MeetsNoRule reports whether a call asks about descriptors, and no rule matches any: it is not limited.
func (c *Call) MeetsNoRule() bool {
	asks := false
	for i := range c.Decisions {
		d := &c.Decisions[i]
		if d.view != nil {
			return false
		}
		asks = asks || !d.returns
	}
	return asks
}
