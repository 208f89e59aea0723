package descriptors

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Needs is what a domain's rules have to know of requests, and what they
// may answer. A configuration of Envoy is made from it.
type Needs struct {
	// Resources: requests are described by the entries method (:method) and
	// path (:path, with the query), in this order, and then by the others
	// below, in any order. A header that a request has not, has no entry.
	Resources bool
	// Headers are the request headers that resources match on, in lower case
	// and sorted; x-plan is sent as the entry header.x-plan.
	Headers []string
	// SOAPAction: the SOAPAction header is sent as the entry soap_action.
	SOAPAction bool
	// SOAPBinding: routes say which binding they belong to, in the entry
	// soap_binding.
	SOAPBinding bool

	// Concurrency: some rule limits requests in flight, so that their ends
	// must be reported: as Leases, as Hits, or as both.
	Concurrency, Leases, Hits bool
	// Statuses are the statuses of refusals by tiers, ascending.
	Statuses []int
	// TierHeaders are the names of headers in refusals by tiers, sorted.
	TierHeaders []string
	// MaxDelay is the longest delay of a tier.
	MaxDelay time.Duration
	// MaxLeaseTTL is the longest time that a request counts whose end is not
	// reported.
	MaxLeaseTTL time.Duration
}

// Needs returns what the rules of a domain need; nothing if it is unknown.
func (s *Set) Needs(domain string) Needs {
	var n Needs
	var resources []*resource
	if d := s.domains[domain]; d != nil && d.resources != nil {
		resources = d.resources.all
	}
	for _, r := range resources {
		n.soap(r)
	}
	statuses, names := map[int]bool{}, map[string]bool{}
	for _, r := range s.rules {
		if r.Domain != domain {
			continue
		}
		if c := r.Concurrency; c != nil {
			n.tiers(c, statuses, names)
		}
	}
	n.Resources = len(resources) > 0
	n.Headers = matchedHeaders(resources)
	n.Statuses = slices.Sorted(maps.Keys(statuses))
	n.TierHeaders = slices.Sorted(maps.Keys(names))
	return n
}

func (n *Needs) soap(r *resource) {
	if r.class == classOperation {
		n.SOAPAction = true
	}
	r.each(func(c *criterion) {
		n.SOAPAction = n.SOAPAction || c.place == inAction
		n.SOAPBinding = n.SOAPBinding || c.place == inBinding
	})
}

func (n *Needs) tiers(c *Concurrency, statuses map[int]bool, names map[string]bool) {
	n.Concurrency = true
	n.Hits = n.Hits || c.ByHits
	n.Leases = n.Leases || !c.ByHits
	n.MaxLeaseTTL = max(n.MaxLeaseTTL, c.LeaseTTL)
	for i := range c.Tiers {
		t := &c.Tiers[i]
		n.MaxDelay = max(n.MaxDelay, t.Delay)
		if t.Status != 0 {
			statuses[t.Status] = true
		}
		for _, h := range t.Headers {
			names[h.Name] = true
		}
	}
}

// matchedHeaders returns the names of the headers that resources match on.
func matchedHeaders(resources []*resource) []string {
	names := map[string]bool{}
	for _, r := range resources {
		r.each(func(c *criterion) {
			if c.place == inHeader {
				names[strings.TrimPrefix(c.key, headerEntry)] = true
			}
		})
	}
	return slices.Sorted(maps.Keys(names))
}
